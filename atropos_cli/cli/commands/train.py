"""`atropos train grpo|sft|dpo`: settings -> plan -> trainer. The engine keeps the records; the plugin optimises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.cli.lazy import Group, new_app
from atropos_cli.cli.runs import flattened, resuming
from atropos_cli.cli.training import TrainAction, TrainChosen, build_train_command
from atropos_cli.console.commands import ConfigOption, JsonOption
from atropos_cli.console.ending import end, shell
from atropos_cli.console.names import default_run_folder
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from atropos_cli.domain.training import TrainPlan
    from atropos_cli.ports.trainer import Trainer, TrainResult

METHODS = {
    "grpo": "Train on groups: live ones of an environment (--env), or of stored prompts (--data) with rewards.",
    "sft": "Fine-tune on demonstrations: what sft-gen writes, a run, or any data set of TRL's shape.",
    "dpo": "Train on preference pairs: what dpo-gen writes, a run, or any data set of TRL's shape.",
}


def train(chosen: TrainChosen, *, as_json: JsonOption = False, config: ConfigOption = None) -> int:
    """Train."""
    from atropos_cli.training.build import build_train_plan, derived
    from atropos_cli.training.processes import Launch, World
    from atropos_cli.training.ranks import rank, world_size
    from atropos_cli.training.run import check_there_is_a_run

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
        chosen.method,  # type: ignore[arg-type]
        chosen.settings,
        options,
        chosen.options,
        session.registry,
    )
    if options.dry_run and rank():
        return ExitCode.OK
    if options.dry_run:
        print_train_plan(plan, derived(trainer, plan), session, as_json=as_json)
        return 0
    if output is None and world_size() > 1 and (world.size == 1 or world.hosts > 1):
        raise UsageError("several processes need one run folder", hint="add --output runs/NAME")
    folder = output or default_run_folder(f"train-{chosen.method}")
    if world.size > 1:
        trainer.check(plan)
        if resume:
            check_there_is_a_run(folder)
        return Launch(world, _for_each(session.args, folder, given=output is not None), session.out.note).run()
    return carry_out_training(
        plan, trainer, folder, session, as_json=as_json, resume=resume, overwrite=options.overwrite
    )


def _for_each(args: tuple[str, ...], folder: Path, *, given: bool) -> list[str]:
    """The words of each process: those of this one, for one process, all into one folder."""
    words: list[str] = []
    source = iter(args)
    for word in source:
        if word == "--processes":
            next(source, None)
        elif not word.startswith("--processes="):
            words.append(word)
    words += ["--processes", "1"]  # a file or a variable may ask for more
    return words if given else [*words, "--output", str(folder)]


def print_train_plan(plan: TrainPlan, found: dict[str, Any], session: Session, *, as_json: bool) -> None:
    """The plan and what the trainer derives from it."""
    data: dict[str, Any] = {"digest": plan.digest, **plan.model_dump(mode="json"), "derived": found}
    if as_json:
        session.out.json(data)
    else:
        session.out.details(dict(flattened(data)))


def carry_out_training(
    plan: TrainPlan,
    trainer: Trainer,
    folder: Path,
    session: Session,
    *,
    as_json: bool = False,
    resume: bool = False,
    overwrite: bool = False,
) -> int:
    """Train by the plan, say how it went, return the exit code."""
    from atropos_cli.cli.trainprogress import TrainReporter, train_headline
    from atropos_cli.io.rundir import where_it_stands
    from atropos_cli.training.ranks import rank
    from atropos_cli.training.run import run_train

    reporter = TrainReporter(session.out, plan.steps)
    try:
        result = run_train(
            plan,
            trainer,
            folder=folder,
            registry=session.registry,
            begin="overwrite" if overwrite else "resume" if resume else "new",
            watcher=reporter,
        )
    finally:
        reporter.close()
    if rank():  # rank 0 says how it went, and its exit code is the run's
        return ExitCode.OK
    asked, still = folder, ""
    if result.stopped is not None and (folder := where_it_stands(folder, overwrite=overwrite)) != asked:
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
    from atropos_cli.cli.trainprogress import no_spread_in_training
    from atropos_cli.training.records.curves import HTML

    found = {"run": str(folder), "model": result.output, "steps": str(result.steps)}
    if Path(result.output) == folder:  # broken off before there was any
        del found["model"]
    if (folder / HTML).exists():
        found["curves"] = str(folder / HTML)
    if session.out.verbose:
        found |= {name: f"{value:.4g}" for name, value in result.metrics.items()}
    session.out.details(found)
    if (warning := no_spread_in_training(folder)) is not None:
        session.out.note(f"note: {warning}")


def _following(plan: TrainPlan, model: str, folder: Path) -> str:
    """Rollouts are looked at, a model without any is evaluated: by its suite's environment, where it has one."""
    if plan.rollouts is not None:
        return shell("view", folder)
    return shell("eval", plan.suites[0].plan.environment.name if plan.suites else "ENV", "--model", Path(model))


class TrainMethods(Group):
    """One command per method, its flags made when it is called. Subclasses may give another action."""

    first = "METHOD"
    action: TrainAction = staticmethod(train)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._build(ctx, cmd_name, ["--help"]) if cmd_name in METHODS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in METHODS:
            return args[0], self._build(ctx, args[0], args[1:]), args[1:]
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(METHODS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Methods"):
            formatter.write_dl(list(METHODS.items()))

    def _build(self, ctx: Any, name: str, args: list[str]) -> Any:
        return build_train_command(session_of(ctx), name, args, type(self).action, doc=METHODS[name])


app = new_app(
    cls=TrainMethods,
    subcommand_metavar="METHOD [OPTIONS]",
    help="Train a model. `atropos train METHOD --help` lists all options, with --env NAME those of the environment.",
)


@app.callback()
def _group() -> None:
    """Train a model."""
