"""Carry out the steps of a pipeline here, one after the other, and go on where an earlier attempt ended.

The same `run_step` is what a cluster job calls for its one step: so a step is recorded in the same way
wherever it runs. Nothing that is finished is replaced unless it was named with --redo.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType

from atropos_cli.sdk import DataError
from atropos_cli.sdk.commands import ExitCode
from atropos_cli.sdk.data import file_lock
from atropos_cli.sdk.runs import PlanChanged, RunExists, RunLocked, now
from atropos_pipeline.model import Pipeline, ReadyStep
from atropos_pipeline.records import (
    StepRecord,
    StepView,
    attempt_ids,
    fingerprint,
    read_record,
    step_folder,
    view,
    write_pipeline,
    write_record,
)

_RESUMABLE = frozenset({"gen", "eval", "score", "train"})
_OVERWRITABLE = frozenset({"gen", "eval", "score", "train", "filter", "merge", "sft-gen", "dpo-gen"})
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_LOOKED_AT_S = 1.0
"""`pipeline status` holds a step's lock for a moment to see whether anybody else does."""

Report = Callable[[str, str], None]
"""Called with (step, what happens)."""


def prepare(pipeline: Pipeline, *, resume: bool, redo: Collection[str] = ()) -> tuple[list[ReadyStep], set[str]]:
    """Which steps must be carried out, and which of them begin anew; writes nothing.

    Raises RunExists for a folder that holds a pipeline already, PlanChanged when the output of a finished step
    would have to be replaced.
    """
    folder = Path(pipeline.folder)
    again = pipeline.following(redo)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file, not a folder", hint="give another --output")
    if not (folder / "pipeline.json").exists():
        if folder.exists() and any(folder.iterdir()):
            raise RunExists(f"{folder} is not empty and holds no pipeline", hint="give another --output")
    elif not resume:
        raise RunExists(f"{folder} already holds a pipeline", hint="--resume goes on with it, --output names another")
    views = view(pipeline)
    wanted = [step for step in pipeline.steps if step.name in again or views[step.name].state != "done"]
    names = {step.name for step in wanted}
    stuck: list[tuple[str, str]] = []
    for step in wanted:
        found = views[step.name]
        if step.name not in again and found.state in ("changed", "outdated") and _is_there(step):
            stuck.append((step.name, found.reason))
    for name in pipeline.following(names) - names:
        stuck.append((name, "a step before it must be carried out again"))
    if stuck:
        lines = [f"  {name}: {reason}" for name, reason in stuck]
        names = {name for name, _ in stuck}
        first = [name for name in names if names.isdisjoint(pipeline.step(name).after)]
        hint = " ".join(f"--redo {name}" for name in sorted(first))
        raise PlanChanged("\n".join(["finished steps do not fit any more:", *lines]), hint=f"replace them with {hint}")
    return wanted, again


def run_here(pipeline: Pipeline, steps: Sequence[ReadyStep], again: Collection[str], report: Report) -> int:
    """Carry out the steps in order; stops at the first that does not end with 0 and returns its code."""
    write_pipeline(pipeline)
    for step in steps:
        code = run_step(pipeline, step, anew=step.name in again, report=report)
        if code != ExitCode.OK:
            return code
    return ExitCode.OK


def run_step(pipeline: Pipeline, step: ReadyStep, *, anew: bool = False, report: Report) -> int:
    """Carry out one step and record how it went. Returns its exit code: 130 after Ctrl-C or SIGTERM.

    Raises RunLocked while it is carried out elsewhere, DataError when a step before it is not done, or when it
    ended well and left no output.
    """
    with _locked(step_folder(pipeline, step.name)):
        _check_before(pipeline, step)
        return _run_step(pipeline, step, anew=anew, report=report)


def _run_step(pipeline: Pipeline, step: ReadyStep, *, anew: bool, report: Report) -> int:
    command = _with_flags(step, anew=anew, begun=read_record(pipeline, step.name) is not None)
    record = StepRecord(
        id=secrets.token_hex(8),
        step=step.name,
        digest=step.digest,
        state="running",
        command=command,
        inputs={path: fingerprint(Path(path)) for path in step.inputs},
        after=attempt_ids(pipeline, step.after),
        started=now(),
        host=socket.gethostname(),
    )
    write_record(pipeline, record)
    report(step.name, "started")
    code, stopped = _execute(pipeline, step, command)
    state = "done" if code == ExitCode.OK else "interrupted" if stopped or code == ExitCode.INTERRUPTED else "failed"
    if state == "done" and not _is_there(step):
        state = "failed"
    write_record(pipeline, record.replace(state=state, exit_code=code, ended=now()))
    report(step.name, state if code == ExitCode.OK else f"{state} with exit code {code}")
    if code == ExitCode.OK and state == "failed":
        raise DataError(
            f"step {step.name!r} ended with 0 and left no {step.output}",
            hint="let its command write to {output}, or set the step's output",
        )
    return ExitCode.INTERRUPTED if stopped else code


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """While a step is carried out. Raises RunLocked."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(file_lock(folder / "lock", wait=_LOOKED_AT_S))
        except OSError as error:
            raise RunLocked(f"step {folder.name!r} is being carried out already ({folder})", hint="wait") from error
        yield


def _check_before(pipeline: Pipeline, step: ReadyStep) -> None:
    views = view(pipeline)
    for name in step.after:
        before: StepView = views[name]
        if before.state != "done":
            why = f" ({before.reason})" if before.reason else ""
            raise DataError(f"step {step.name!r} comes after {name!r}, which is not done: {before.state}{why}")


def _with_flags(step: ReadyStep, *, anew: bool, begun: bool) -> tuple[str, ...]:
    """The command with --resume or --overwrite, where an earlier attempt left an output."""
    name, *rest = step.command
    end = rest.index("--") if "--" in rest else len(rest)
    flag = None
    if {"--resume", "--overwrite"}.isdisjoint(rest[:end]):
        partial = step.output is not None and Path(f"{step.output}.partial").exists()
        there = _is_there(step)
        if not anew and begun and name in _RESUMABLE and (partial if name == "score" else there):
            flag = "--resume"
        elif (anew or begun) and name in _OVERWRITABLE and (there or partial):
            flag = "--overwrite"
    return (name, *rest[:end], *([flag] if flag else []), *rest[end:])


def _is_there(step: ReadyStep) -> bool:
    return step.output is None or Path(step.output).exists()


def _execute(pipeline: Pipeline, step: ReadyStep, command: Sequence[str]) -> tuple[int, bool]:
    """(exit code, was it asked to stop). Output goes to the step's log and to standard error."""
    stopped = False
    child: subprocess.Popen[bytes] | None = None

    def forward(number: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    old = {number: signal.signal(number, forward) for number in _SIGNALS}
    try:
        with (step_folder(pipeline, step.name) / "log.txt").open("ab", buffering=0) as log:
            child = subprocess.Popen(  # noqa: S603 (no shell)
                [sys.executable, "-m", "atropos_cli", *command],
                cwd=pipeline.cwd,
                env={**os.environ, **step.env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,  # signals of a terminal reach the step by us alone, and once
                preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
            )
            if stopped:  # between the handlers and the start
                child.terminate()
            assert child.stdout is not None
            while block := os.read(child.stdout.fileno(), 1 << 16):
                log.write(block)
                with contextlib.suppress(OSError):
                    os.write(2, block)
        code = child.wait()
    except OSError as error:
        raise DataError(f"step {step.name!r} cannot be started: {error}") from error
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    return (code if code >= 0 else 128 - code), stopped
