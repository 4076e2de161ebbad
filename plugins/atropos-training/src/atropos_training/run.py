"""Execute a TrainPlan: lock the folder, hand everything to the trainer, leave a state to resume from.

    run_train(plan, trainer, folder=..., registry=...) -> TrainResult

Ctrl-C or SIGTERM once: the trainer finishes its step, saves and returns. Twice: at once. kill -9: --resume
goes on from the newest complete checkpoint. Under torchrun or accelerate every process comes here: see ranks.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from atropos_cli.sdk import AtroposError, DataError
from atropos_cli.sdk.commands import ExitCode
from atropos_cli.sdk.data import read_object
from atropos_cli.sdk.engine import Registry
from atropos_cli.sdk.outputs import Writer
from atropos_cli.sdk.planning import Begin
from atropos_cli.sdk.records import STATE_FILE, checkpoints, read_train_plan
from atropos_cli.sdk.runs import (
    JOB_FILE,
    Plan,
    RunDir,
    RunExists,
    check_alone,
    check_same_identity,
    holds_training,
    open_run,
)
from atropos_cli.sdk.training import Trainer, TrainerError, TrainPlan, TrainResult
from atropos_training.asynchronous import AsyncSession
from atropos_training.pulling import PullSession
from atropos_training.ranks import RankRecording, open_rank, rank, world_size
from atropos_training.recording import Recording
from atropos_training.session import TrainSession
from atropos_training.watching import SilentWatcher, TrainWatcher

Say = Callable[[str], None]


def run_train(
    plan: TrainPlan,
    trainer: Trainer,
    *,
    folder: Path,
    registry: Registry,
    begin: Begin = "new",
    watcher: TrainWatcher | None = None,
) -> TrainResult:
    """Train into a run folder. Raises AtroposError; whatever happens, the folder holds the last good state."""
    telling = watcher or SilentWatcher()
    say = telling.say
    trainer.check(plan)
    if begin == "resume":
        check_there_is_a_run(folder)
        if (result := finished(folder, plan)) is not None:
            say(f"{folder} is finished: nothing is left to do")
            return result
    if rank():
        return _help(plan, trainer, folder, registry, begin=begin)
    stored = folder / "plan.json"
    # What a failed start left is no run: it does not stop a new one.
    left = begin == "new" and not holds_training(folder) and _is_training(stored)
    resume = begin == "resume"
    run_dir = open_run(folder, resume=resume or left, overwrite=begin == "overwrite")
    try:
        begun = holds_training(run_dir.folder)
        if begun and not resume:  # somebody was faster
            raise RunExists(f"{folder} already holds a run", hint="--resume continues it")
        if begun:
            check_same_identity(read_train_plan(stored), plan, folder)
        elif resume and stored.exists():
            read_train_plan(stored)
            say(f"nothing was done in {folder} yet: the run begins")
        if begun and _requeued() and not checkpoints(folder):
            say("the cluster ended this run before its first checkpoint: it begins again")
            resume = False
        result = _train(plan, trainer, run_dir, registry, telling, resume=resume and begun)
        if result.stopped is None:
            run_dir.promote()
        return result
    finally:
        run_dir.close()


def check_there_is_a_run(folder: Path) -> None:
    """Refuse to resume a run that never started, or when there are two candidates. Raises DataError.

    A job of a launcher says --resume on its first start too: its folder holds the job. A start that was killed
    before it wrote the plan leaves the lock and the log alone; nothing else is there to be taken for a run.
    """
    check_alone(folder)
    if (folder / "plan.json").exists() or (folder / JOB_FILE).exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if names and names <= {"lock", "log.jsonl"}:
        return
    raise DataError(
        f"{folder} holds no run to resume" if folder.exists() else f"{folder} does not exist: no run to resume",
        hint="leave out --resume to start one, or name the folder of a run with --output",
    )


def finished(folder: Path, plan: TrainPlan) -> TrainResult | None:
    """The result of a run that is done already, as asked for now; None while something is left to do.

    Raises PlanChanged for one that was made by another plan.
    """
    try:
        state: Any = read_object(folder / STATE_FILE)
        if state.get("state") != "finished" or not (folder / "model").is_dir():
            return None
    except (OSError, ValueError, AttributeError):
        return None
    stored = read_train_plan(folder / "plan.json")
    # A job's plan.json is written when it is submitted, also for more steps: what has ended knows its own number.
    if (state.get("plan_steps", stored.steps), state.get("plan_epochs", stored.epochs)) != (plan.steps, plan.epochs):
        return None
    check_same_identity(stored, plan, folder)
    metrics = {str(name): float(value) for name, value in (state.get("metrics") or {}).items()}
    return TrainResult(output=str(folder / "model"), steps=int(state.get("step") or 0), metrics=metrics)


def _is_training(path: Path) -> bool:
    try:
        read_train_plan(path)
    except DataError:
        return False
    return True


def _requeued() -> bool:
    """Has the cluster queued this job again? With nothing to resume it starts then."""
    return os.environ.get("SLURM_RESTART_COUNT", "0") not in ("", "0")


def _train(
    plan: TrainPlan, trainer: Trainer, run_dir: RunDir, registry: Registry, watcher: TrainWatcher, *, resume: bool
) -> TrainResult:
    say = watcher.say
    recording = Recording(plan, run_dir, registry, watcher=watcher)
    kind = PullSession if plan.pull is not None else AsyncSession if plan.async_steps else TrainSession
    session = kind(plan, run_dir, registry, recording, resume=resume)
    state, code = "failed", int(ExitCode.TRAINER)
    result: TrainResult | None = None
    error: BaseException | None = None
    try:
        session.prepare(lambda rollouts: _writer(rollouts, registry))
        run_dir.write_plan(plan)
        run_dir.log("started", attempt=run_dir.attempt, resume=resume)
        recording.begin(resume=resume)
        with _signals(session, say):
            result = session.carry(trainer)
        if result.stopped is None:
            result = _at_its_place(result, run_dir)
            state, code = "finished", int(ExitCode.OK)
        else:
            state = "interrupted" if result.stopped == "interrupted" else "stopped"
            code = int(ExitCode.INTERRUPTED if state == "interrupted" else ExitCode.TRAINER)
        return result
    except KeyboardInterrupt as stop:
        state, code, error = "interrupted", int(ExitCode.INTERRUPTED), stop
        raise
    except AtroposError as problem:
        error = problem
        raise
    except (Exception, SystemExit) as problem:
        error = problem
        raise TrainerError(
            f"trainer {plan.trainer.name!r} failed: {_said(problem)}",
            hint=_where_and_how(run_dir.folder),
        ) from problem
    finally:
        session.account()
        # In the order of what must not be lost: the records first, then what only has to be closed.
        if (run_dir.folder / "plan.json").exists():
            recording.end(state, code, result, session.results, error=error)
            run_dir.log("ended", state=state)
        session.close()


def _at_its_place(result: TrainResult, run_dir: RunDir) -> TrainResult:
    """The result with the path that the weights have once an --overwrite run has taken the old one's place."""
    if run_dir.final is None or not Path(result.output).is_relative_to(run_dir.folder):
        return result
    output = run_dir.final / Path(result.output).relative_to(run_dir.folder)
    return result.model_copy(update={"output": str(output)})


def _said(problem: BaseException) -> str:
    """An exception in a line; a trainer, or what it trains on, may also have called sys.exit()."""
    if isinstance(problem, SystemExit):
        return f"it called sys.exit({problem.code!r})"
    return f"{type(problem).__name__}: {problem}"


def _where_and_how(folder: Path) -> str:
    hint, saved = "--debug shows where", checkpoints(folder)
    return f"{hint}; {saved[-1]} is complete: continue with --resume --output {folder}" if saved else hint


def _help(plan: TrainPlan, trainer: Trainer, folder: Path, registry: Registry, *, begin: Begin) -> TrainResult:
    """The part of a rank other than 0."""
    run_dir = open_rank(folder, rank(), overwrite=begin == "overwrite")
    recording = RankRecording(run_dir)
    resume = begin == "resume" and bool(checkpoints(run_dir.run))  # rank 0 of a new run may have begun meanwhile
    session = TrainSession(plan, run_dir, registry, recording, resume=resume)
    try:
        session.prepare(lambda rollouts: _writer(rollouts, registry))
        with _signals(session, lambda text: None):
            return trainer.train(plan, session)
    except (AtroposError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as problem:
        raise TrainerError(
            f"trainer {plan.trainer.name!r} failed on rank {rank()}: {_said(problem)}",
            hint="the first error of all ranks is the cause; --debug shows where",
        ) from problem
    finally:
        session.close()
        run_dir.close()


def _writer(plan: Plan, registry: Registry) -> Writer:
    cls: Any = registry.find("writer", plan.writer.name).load()
    writer: Writer = cls(cls.Config())
    return writer


@contextlib.contextmanager
def _signals(session: TrainSession, say: Say) -> Iterator[None]:
    """The first SIGINT or SIGTERM asks the trainer to save and return; the second ends it where it is.

    Not so under a launcher: it passes on a signal that the process group had already, and kills by itself in the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: Any) -> None:
        if session.stopping:
            if world_size() > 1:
                return
            raise KeyboardInterrupt
        session.stop()
        say("stopping: the step at hand is finished and saved; again to stop now")

    old = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
