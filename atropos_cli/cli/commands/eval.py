"""`atropos eval ENV`: roll out, count successes, say how sure they are, compare with earlier results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PositiveInt

from atropos_cli.cli.environments import ConfiguredEnvironment, Use, environment_app
from atropos_cli.cli.runs import execute_part, print_plan
from atropos_cli.cli.spread import ShardOptions, roll_out, shard_target
from atropos_cli.config.commands import CommandOptions, command_bucket, option
from atropos_cli.console.commands import ConfigOption, JsonOption
from atropos_cli.console.ending import counted, end, shell
from atropos_cli.console.names import default_run_folder, safe_name
from atropos_cli.domain.delivery import Delivery
from atropos_cli.domain.selection import Selection
from atropos_cli.errors import ExitCode, UsageError
from atropos_cli.jobs.order import PlannedRun, makes_plan

if TYPE_CHECKING:
    from atropos_cli.domain.plan import Plan
    from atropos_cli.evaluation.evaluation import Evaluation

PANEL = "Evaluation"


class ResultOptions(CommandOptions):
    """How often each task is tried, what counts, and where the result goes."""

    output: str | None = option(
        None, "Folder of the run, eval.json and eval.md.", panel=PANEL, short="o", metavar="RUN"
    )
    samples: int = option(
        1, "Rollouts of each task; 1 is greedy unless --temperature is given.", panel=PANEL, metavar="N", ge=1
    )
    k: tuple[PositiveInt, ...] = option((), "Report pass@K and pass^K; default: 1, N.", panel=PANEL, metavar="K")
    success_at: float | None = option(
        None, "Reward from which a rollout is a success; default: full marks.", panel=PANEL, metavar="X"
    )
    errors: Literal["wrong", "leave-out"] = option(
        "wrong", "What rollouts that ended in an error count as.", panel=PANEL
    )
    models: tuple[str, ...] = option((), "Evaluate several models side by side.", panel=PANEL, metavar="MODEL")
    baseline: Path | None = option(None, "An earlier evaluation to compare with.", panel=PANEL, metavar="PATH")
    resume: bool = option(False, "Go on with an interrupted evaluation.", panel=PANEL)
    overwrite: bool = option(False, "Replace an earlier evaluation.", panel=PANEL)
    dry_run: bool = option(False, "Print the plan and stop.", panel=PANEL)


class EvalOptions(ResultOptions, ShardOptions):
    """The options of `eval`."""


OWN = command_bucket("eval", EvalOptions)


@makes_plan
def evaluate_environment(
    chosen: ConfiguredEnvironment, *, options: EvalOptions, as_json: JsonOption = False, config: ConfigOption = None
) -> int:
    """Evaluate a model."""
    from atropos_cli.evaluation.evaluation import compare, read_evaluation
    from atropos_cli.io.rundir import where_it_stands
    from atropos_cli.runs.tracked import tracked

    output, samples = options.output, options.samples
    if options.resume and (options.overwrite or output is None):
        raise UsageError("--resume needs --output and excludes --overwrite")
    target = shard_target(chosen, options)
    earlier = read_evaluation(options.baseline) if options.baseline is not None else None
    names: list[str | None] = list(options.models) if options.models else [chosen.settings.model]
    plans = [_plan(chosen, model, samples) for model in names]
    if chosen.session.take is not None:
        chosen.session.take(PlannedRun(plans[0], complete=False))
        return ExitCode.OK
    if options.dry_run:
        for plan in plans:
            print_plan(plan, chosen.session.out, as_json=as_json)
        return 0
    folder = Path(output) if output else default_run_folder(f"eval-{chosen.environment.name}")
    code = 0
    found: list[Evaluation] = []
    for plan in plans:
        place = folder if len(plans) == 1 else folder / safe_name(plan.model or "model")
        if len(plans) > 1 and plan.tracking.run_group is None:
            plan = plan.replace(tracking=plan.tracking.replace(run_group=folder.absolute().name))
        if target is not None:
            if roll_out(plan, place, chosen.session, target, resume=options.resume) is None:
                return ExitCode.INTERRUPTED
            found.append(_count(place, options))
            continue
        with tracked(plan, place, chosen.session.registry, overwrite=options.overwrite, command="eval") as order:
            ended = execute_part(order, chosen.session, folder, resume=options.resume)
            if ended not in (ExitCode.OK, ExitCode.FAILED):
                return ended
            code = code or ended
            stands = where_it_stands(place, overwrite=options.overwrite)
            found.append(_count(stands, options))
            order.evaluated(found[-1])
    comparisons = [compare(item, earlier) if earlier is not None else None for item in found]
    _publish(folder, found, comparisons, chosen, as_json=as_json)
    return code


def _plan(chosen: ConfiguredEnvironment, model: str | None, samples: int) -> Plan:
    """Greedy for one rollout; an environment that holds out tasks is asked for them, unless told otherwise."""
    from atropos_cli.rollout.planner import build_plan

    settings = chosen.settings
    if chosen.resolved.origin("settings", ("delivery", "to")).kind == "flag":
        raise UsageError("--to is for gen: an evaluation is not trained on", hint="atropos gen pushes groups")
    for name in Selection.model_fields:
        if chosen.resolved.origin("settings", ("selection", name)).kind == "flag":
            raise UsageError(f"--{name.replace('_', '-')} is for gen: an evaluation takes every task alike")
    # A file or a variable may say it for gen.
    changes: dict[str, Any] = {"group_size": samples, "model": model, "advantage": "none", "delivery": Delivery()}
    changes["selection"] = Selection()
    if "temperature" not in settings.sampling.model_fields_set and samples == 1:
        changes["sampling"] = settings.sampling.model_copy(update={"temperature": 0.0})
    if "logprobs" not in settings.model_fields_set:
        changes["logprobs"] = "off"
    if "split" not in settings.model_fields_set:
        changes["split"] = next((s for s in ("test", "valid") if s in chosen.environment.splits), settings.split)
    settings = settings.model_copy(update=changes)
    return build_plan(settings, chosen.given_name, chosen.options, chosen.session.registry)


def _count(folder: Path, options: EvalOptions) -> Evaluation:
    """Evaluate the run in a folder and leave eval.json beside it."""
    from atropos_cli.evaluation.evaluation import evaluate
    from atropos_cli.evaluation.evidence import Evidence
    from atropos_cli.io.append import atomic_write
    from atropos_cli.io.rundir import read_plan

    plan = read_plan(folder / "plan.json")
    ks = sorted({*(options.k or (1, options.samples))})
    evidence = Evidence.of_run(folder)
    found = evaluate(plan, evidence, ks=ks, success_at=options.success_at, errors=options.errors)
    atomic_write(folder / "eval.json", found.model_dump_json(indent=2).encode() + b"\n")
    return found


def _publish(
    folder: Path, found: list[Evaluation], comparisons: list[Any], chosen: ConfiguredEnvironment, *, as_json: bool
) -> None:
    from atropos_cli.evaluation.report import details, estimate, report
    from atropos_cli.io.append import atomic_write
    from atropos_cli.io.remote import make_folder

    out = chosen.session.out
    make_folder(folder)
    atomic_write(folder / "eval.md", report(found, comparisons).encode())
    if as_json:
        rows = [
            {**item.model_dump(mode="json"), "comparison": None if change is None else change.model_dump(mode="json")}
            for item, change in zip(found, comparisons, strict=True)
        ]
        out.json({"report": os.fspath(folder / "eval.md"), "evaluations": rows})
        return
    for item, change in zip(found, comparisons, strict=True):
        lines = {
            "environment": f"{item.environment} ({item.split})",
            "model": item.model or "?",
            **{f"accuracy {name}": estimate(value) for name, value in item.environments.items()},
            **{f"pass@{k}": estimate(value) for k, value in item.pass_at.items() if k != "1"},
            **{f"pass^{k}": estimate(value) for k, value in item.pass_hat.items() if k != "1"},
            **{f"pass@{k}": f"left out: {why}" for k, why in item.left_out.items()},
            "rollouts": f"{item.scored} scored, {item.errors} errors of {item.rollouts}"
            + (f" (errors count as {item.errors_count_as})" if item.errors else ""),
            **{f"reward {name}": details(told) for name, told in item.reward_details.items()},
        }
        if change is not None:
            lines["change"] = f"{estimate(change.difference)}, {len(change.gained)} gained, {len(change.lost)} lost"
        out.details(lines)
    out.note(f"report: {folder / 'eval.md'}")
    best = max(found, key=lambda item: -1.0 if item.accuracy is None else item.accuracy.value)
    place = folder if len(found) == 1 else folder / safe_name(best.model or "model")
    # Several models stand in one line, the first one asked for first.
    named = [f"{item.model or '?'}: {_accuracy(item)}" if len(found) > 1 else _accuracy(item) for item in found]
    end(out, f"accuracy {'; '.join(named)}", shell("view", place), data=True)


def _accuracy(item: Evaluation) -> str:
    from atropos_cli.evaluation.report import estimate

    if item.accuracy is None:
        return f"unknown: {item.success_rule}"
    return f"{estimate(item.accuracy)} over {counted(item.accuracy.tasks, 'task')} ({item.success_rule})"


app: Any = environment_app(
    Use(evaluate_environment, OWN),
    "Evaluate a model on an environment. `atropos eval ENV --help` lists all options.",
)
