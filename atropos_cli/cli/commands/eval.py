"""`atropos eval ENV`: roll out, count successes, say how sure they are, compare with earlier results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli.environments import Chosen, environment_app
from atropos_cli.cli.options import ConfigOption, JsonOption
from atropos_cli.cli.runs import carry_out_part, print_plan
from atropos_cli.console.ending import counted, end, shell
from atropos_cli.console.names import default_run_folder, safe_name
from atropos_cli.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from atropos_cli.domain.plan import Plan
    from atropos_cli.evaluation.evaluation import Evaluation

PANEL = "Evaluation"


def _option(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=PANEL)


def evaluate_environment(
    chosen: Chosen,
    *,
    output: Annotated[
        str | None, _option("--output", "-o", metavar="RUN", help="Folder of the run, eval.json and eval.md.")
    ] = None,
    samples: Annotated[
        int, _option("--samples", metavar="N", help="Rollouts of each task; 1 is greedy unless --temperature is given.")
    ] = 1,
    k: Annotated[
        list[int] | None, _option("--k", metavar="K", help="Report pass@K and pass^K (repeatable).  [default: 1, N]")
    ] = None,
    success_at: Annotated[
        float | None,
        _option("--success-at", metavar="X", help="Reward from which a rollout is a success.  [default: full marks]"),
    ] = None,
    errors: Annotated[
        str, _option("--errors", metavar="wrong|leave-out", help="What rollouts that ended in an error count as.")
    ] = "wrong",
    models: Annotated[
        list[str] | None,
        _option("--models", metavar="MODEL", help="Evaluate several models side by side (repeatable)."),
    ] = None,
    baseline: Annotated[
        Path | None, _option("--baseline", metavar="PATH", help="An earlier evaluation to compare with.")
    ] = None,
    resume: Annotated[bool, _option("--resume", help="Go on with an interrupted evaluation.")] = False,
    overwrite: Annotated[bool, _option("--overwrite", help="Replace an earlier evaluation.")] = False,
    dry_run: Annotated[bool, _option("--dry-run", help="Print the plan and stop.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """Evaluate a model."""
    from atropos_cli.evaluation.evaluation import compare, read_evaluation
    from atropos_cli.io.rundir import where_it_stands
    from atropos_cli.runs.tracked import tracked

    if samples < 1 or any(value < 1 for value in k or ()):
        raise UsageError("--samples and --k must be at least 1")
    if errors not in ("wrong", "leave-out"):
        raise UsageError(f"--errors {errors!r} is neither wrong nor leave-out")
    if resume and (overwrite or output is None):
        raise UsageError("--resume needs --output and excludes --overwrite")
    earlier = read_evaluation(baseline) if baseline is not None else None
    names: list[str | None] = list(models) if models else [chosen.settings.model]
    plans = [_plan(chosen, model, samples) for model in names]
    if dry_run:
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
        with tracked(plan, place, chosen.session.registry, overwrite=overwrite, command="eval") as order:
            ended = carry_out_part(order, chosen.session, folder, resume=resume)
            if ended not in (ExitCode.OK, ExitCode.FAILED):
                return ended
            code = code or ended
            ks = sorted({*(k or (1, samples))})
            stands = where_it_stands(place, overwrite=overwrite)
            found.append(_count(stands, ks=ks, success_at=success_at, errors=errors))
            order.evaluated(found[-1])
    comparisons = [compare(item, earlier) if earlier is not None else None for item in found]
    _publish(folder, found, comparisons, chosen, as_json=as_json)
    return code


def _plan(chosen: Chosen, model: str | None, samples: int) -> Plan:
    """Greedy for one rollout; an environment that holds out tasks is asked for them, unless told otherwise."""
    from atropos_cli.rollout.planner import build_plan

    settings = chosen.settings
    changes: dict[str, Any] = {"group_size": samples, "model": model, "advantage": "none"}
    if "temperature" not in settings.sampling.model_fields_set and samples == 1:
        changes["sampling"] = settings.sampling.model_copy(update={"temperature": 0.0})
    if "logprobs" not in settings.model_fields_set:
        changes["logprobs"] = "off"
    if "split" not in settings.model_fields_set:
        changes["split"] = next((s for s in ("test", "valid") if s in chosen.environment.splits), settings.split)
    settings = settings.model_copy(update=changes)
    return build_plan(settings, chosen.given_name, chosen.options, chosen.session.registry)


def _count(folder: Path, *, ks: list[int], success_at: float | None, errors: Any) -> Evaluation:
    """Evaluate the run in a folder and leave eval.json beside it."""
    from atropos_cli.evaluation.evaluation import evaluate
    from atropos_cli.evaluation.evidence import Evidence
    from atropos_cli.io.append import atomic_write
    from atropos_cli.io.rundir import read_plan

    plan = read_plan(folder / "plan.json")
    found = evaluate(plan, Evidence.of_run(folder), ks=ks, success_at=success_at, errors=errors)
    atomic_write(folder / "eval.json", found.model_dump_json(indent=2).encode() + b"\n")
    return found


def _publish(folder: Path, found: list[Evaluation], comparisons: list[Any], chosen: Chosen, *, as_json: bool) -> None:
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
    evaluate_environment, "Evaluate a model on an environment. `atropos eval ENV --help` lists all options."
)
