"""`atropos train METHOD`: settings -> plan -> trainer. The engine keeps the records; the plugin optimises."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.main import get_group

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.commands import (
    ConfigOption,
    ExitCode,
    JsonOption,
    Session,
    default_run_folder,
    end,
    session_of,
    shell,
)
from atropos_cli.sdk.planning import (
    Group,
    PlannedRun,
    StoredRun,
    flattened,
    makes_plan,
    new_app,
    resuming,
)
from atropos_cli.sdk.runs import RunExists
from atropos_training.options import TrainAction, TrainChosen, build_train_command, methods_of

if TYPE_CHECKING:
    from atropos_cli.sdk.planning import Begin
    from atropos_cli.sdk.training import Trainer, TrainPlan, TrainResult
    from atropos_training.processes import World


@makes_plan
def train(chosen: TrainChosen, *, as_json: JsonOption = False, config: ConfigOption = None) -> int:
    """Train."""
    from atropos_training.build import build_train_plan, derived
    from atropos_training.processes import World
    from atropos_training.ranks import rank, world_size

    options = chosen.train
    output, resume = options.output, options.resume
    if resume and options.overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    if resume and output is None:
        raise UsageError("--resume needs the run folder to go on with", hint="add --output runs/NAME")
    session = chosen.session
    world = World.here(options.processes)
    if world.size > 1:
        os.environ["WORLD_SIZE"] = str(world.size)  # the batch has to come out even
    plan, trainer = build_train_plan(
        chosen.method,
        chosen.settings,
        options,
        chosen.options,
        session.registry,
        resumed=output if resume else None,
    )
    if session.take is not None:
        taken = PlannedRun(plan, output, overwrite=options.overwrite, processes=options.processes)
        session.take(replace(taken, own_processes=trainer.own_processes))
        derived(trainer, plan)  # complains of data that is not there
        return ExitCode.OK
    if options.dry_run and rank():
        return ExitCode.OK
    if options.dry_run:
        print_train_plan(plan, derived(trainer, plan), session, as_json=as_json)
        return 0
    if output is None and world_size() > 1 and (world.size == 1 or world.hosts > 1):
        raise UsageError("several processes need one run folder", hint="add --output runs/NAME")
    folder = output or default_run_folder(f"train-{chosen.method.name}")
    begin: Begin = "overwrite" if options.overwrite else "resume" if resume else "new"
    if world.size > 1:
        place = StoredRun(folder / "plan.json", folder, begin=begin, as_json=as_json)
        return on_processes(plan, trainer, place, session, world)
    return execute_training(plan, trainer, folder, session, as_json=as_json, begin=begin)


def on_processes(plan: TrainPlan, trainer: Trainer, place: StoredRun, session: Session, world: World) -> ExitCode:
    """Train on several processes: each carries out the same stored plan, in one folder."""
    from atropos_cli.sdk.runs import holds_training
    from atropos_training.processes import Launch
    from atropos_training.run import check_there_is_a_run

    folder, begin = place.folder, place.begin
    trainer.check(plan)
    if begin == "resume":
        check_there_is_a_run(folder)
    elif begin == "new" and holds_training(folder):
        raise RunExists(f"{folder} already holds a run", hint="--resume goes on with it, --overwrite replaces it")
    with tempfile.NamedTemporaryFile("w", prefix="atropos-", suffix=".json") as file:
        file.write(plan.model_dump_json())
        file.flush()
        words = ["run", file.name, "--output", str(folder), "--begin", begin, *(["--json"] if place.as_json else [])]
        return Launch(world, [*words, *session.switches], session.out.note).run()


def print_train_plan(plan: TrainPlan, found: dict[str, Any], session: Session, *, as_json: bool) -> None:
    """The plan and what the trainer derives from it."""
    data: dict[str, Any] = {"digest": plan.digest, **plan.model_dump(mode="json"), "derived": found}
    if as_json:
        session.out.json(data)
    else:
        session.out.details(dict(flattened(data)))


def execute_training(
    plan: TrainPlan,
    trainer: Trainer,
    folder: Path,
    session: Session,
    *,
    as_json: bool = False,
    begin: Begin = "new",
) -> int:
    """Train by the plan, say how it went, return the exit code."""
    from atropos_cli.sdk.runs import where_it_stands
    from atropos_training.progress import TrainReporter, train_headline
    from atropos_training.ranks import rank
    from atropos_training.run import run_train

    reporter = TrainReporter(session.out, plan.steps)
    try:
        result = run_train(
            plan,
            trainer,
            folder=folder,
            registry=session.registry,
            begin=begin,
            watcher=reporter,
        )
    finally:
        reporter.close()
    if rank():  # rank 0 says how it went, and its exit code is the run's
        return ExitCode.OK
    asked, still = folder, ""
    if result.stopped is not None and (folder := where_it_stands(folder, overwrite=begin == "overwrite")) != asked:
        still = f" ({asked} is still the old run)"
    if as_json:
        session.out.json({"run": str(folder), **result.model_dump(mode="json")})
    else:
        _print(plan, result, folder, session)
    if result.stopped == "interrupted":
        when = f"after step {result.steps}" if result.steps else "before the first step was done"
        end(session.out, f"interrupted {when}{still}", resuming(session.args, folder))
        return ExitCode.INTERRUPTED
    if result.stopped is not None:
        session.out.error(f"training was stopped: {result.stopped}", f"see {folder}/train.json")
        return ExitCode.TRAINER
    if not as_json:
        end(session.out, train_headline(plan, folder), _following(plan, result.output, folder), data=True)
    return ExitCode.OK


def _print(plan: TrainPlan, result: TrainResult, folder: Path, session: Session) -> None:
    """Where everything is; the metrics themselves are in the files, and here with -v."""
    from atropos_cli.sdk.records import CURVES_FILE
    from atropos_training.progress import no_spread_in_training

    found = {"run": str(folder), "model": result.output, "steps": str(result.steps)}
    if Path(result.output) == folder:  # broken off before there was any
        del found["model"]
    if (folder / CURVES_FILE).exists():
        found["curves"] = str(folder / CURVES_FILE)
    if session.out.verbose:
        found |= {name: f"{value:.4g}" for name, value in result.metrics.items()}
    session.out.details(found)
    if (warning := no_spread_in_training(folder)) is not None:
        session.out.note(f"note: {warning}")


def _following(plan: TrainPlan, model: str, folder: Path) -> str:
    """Rollouts and curves are looked at, a language model is evaluated: by the environment of its suite, if any."""
    if plan.rollouts is not None:
        return shell("view", folder)
    if plan.learns == "own":
        return shell("view", folder)
    if plan.method == "reward":
        return shell("score", "RUN", "--reward", "reward-model", "--reward-model.model", Path(model))
    return shell("eval", plan.suites[0].plan.environment.name if plan.suites else "ENV", "--model", Path(model))


class TrainMethods(Group):
    """One command per method, its flags made when it is called. Subclasses may give another action."""

    first = "METHOD"
    action: TrainAction = staticmethod(train)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._build(ctx, cmd_name, ["--help"]) if cmd_name in methods_of(session_of(ctx)) else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in methods_of(session_of(ctx)):
            return args[0], self._build(ctx, args[0], args[1:]), args[1:]
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(methods_of(session_of(ctx)))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Methods"):
            formatter.write_dl([(name, item.summary) for name, item in methods_of(session_of(ctx)).items()])

    def showing(self, action: TrainAction) -> Any:
        """The same methods with an action that shows their settings, for `atropos config show train`."""
        shows = type("_Shows", (_ShowMethods,), {"action": staticmethod(action)})
        shown = new_app(cls=shows, subcommand_metavar="[METHOD] [OPTIONS]")
        shown.callback()(_show)
        return get_group(shown)

    def _build(self, ctx: Any, name: str, args: list[str]) -> Any:
        session = session_of(ctx)
        return build_train_command(session, methods_of(session)[name], args, type(self).action)


class _ShowMethods(TrainMethods):
    """Without a method, that of `train` with nothing but a method: grpo."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        asked = any(word in methods_of(session_of(ctx)) or word in ("--help", "-h") for word in args)
        start = [] if asked or (args and not args[0].startswith("-")) else ["grpo"]
        return super().parse_args(ctx, [*start, *args])


def _show() -> None:
    """What `atropos train METHOD` would use; METHOD is grpo where none is given."""


app = new_app(
    cls=TrainMethods,
    subcommand_metavar="METHOD [OPTIONS]",
    help="Train a model. `atropos train METHOD --help` lists all options, with --env NAME those of the environment.",
)


@app.callback()
def _group() -> None:
    """Train a model."""
