"""`atropos reevaluate RUN`: judge the stored checkpoints of a training run by its suites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atropos_cli.sdk.commands import (
    CommandOptions,
    ExitCode,
    JsonOption,
    Session,
    counted,
    end,
    option,
    shell,
    with_flags,
)

if TYPE_CHECKING:
    from atropos_tracking.reevaluations import Reevaluation


class ReevaluateOptions(CommandOptions):
    """Which checkpoints are evaluated, and by which suites."""

    checkpoints: tuple[str, ...] = option(
        (), "step-N, or model for the final weights; default: all.", flag="checkpoint", metavar="NAME"
    )
    suites: tuple[str, ...] = option((), "Only this suite; default: all.", flag="suite", metavar="NAME")
    overwrite: bool = option(False, "Evaluate again what was evaluated before.")
    dry_run: bool = option(False, "List what would be evaluated, and stop.")


@with_flags("reevaluate", ReevaluateOptions)
def reevaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A training run's folder.", show_default=False)],
    *,
    options: ReevaluateOptions,
    session: Session,
    as_json: JsonOption = False,
) -> int:
    """Evaluate stored checkpoints with the plan's suites, each as `atropos eval` would with that model.

    Values go to reevaluations.json in the run folder, and so into the journal; an interrupted evaluation is gone on
    with, a finished one is kept.
    """
    from atropos_cli.sdk.records import read_train_plan
    from atropos_tracking.reevaluations import read_reevaluations, reevaluations

    plan = read_train_plan(run / "plan.json")
    todo = reevaluations(plan, run, session.registry, wanted=options.checkpoints, suites=options.suites)
    if options.dry_run:
        session.out.table(
            [[item.checkpoint, item.suite, str(item.place)] for item in todo], header=("checkpoint", "suite", "folder")
        )
        return ExitCode.OK
    code: int = ExitCode.OK
    for item in todo:
        ended = _one(item, run, session, overwrite=options.overwrite)
        if ended not in (ExitCode.OK, ExitCode.FAILED):
            return ended
        code = code or ended
    values = {name: shown for name, shown in read_reevaluations(run).items() if name in {t.checkpoint for t in todo}}
    if as_json:
        session.out.json(values)
        return code
    rows = [
        [name, key.removeprefix("eval/"), f"{value:.4f}"]
        for name, found in values.items()
        for key, value in found.items()
    ]
    session.out.table(rows, header=("checkpoint", "metric", "value"))
    name = f"eval/{todo[0].suite}/accuracy" if todo else ""
    known = {at: found[name] for at, found in values.items() if name in found}
    if not known:
        end(session.out, f"evaluated {counted(len(values), 'checkpoint')}", shell("journal", run), data=True)
        return code
    best = max(known, key=lambda at: known[at])
    place = run / best if best == "model" else run / "checkpoints" / best
    headline = f"best {best}: accuracy {known[best]:.3f} on {todo[0].suite} ({counted(len(known), 'checkpoint')})"
    end(session.out, headline, shell("eval", todo[0].plan.environment.name, "--model", place), data=True)
    return code


def _one(item: Reevaluation, run: Path, session: Session, *, overwrite: bool) -> int:
    from atropos_cli.sdk.analysis import Evidence, evaluate, read_evaluation
    from atropos_cli.sdk.data import atomic_write
    from atropos_cli.sdk.planning import execute_part, tracked
    from atropos_cli.sdk.runs import where_it_stands
    from atropos_tracking.reevaluations import keep_values, values_of

    place, done = item.place, item.place / "eval.json"
    if done.exists() and not overwrite and read_evaluation(done).plan_digest == item.plan.digest:
        keep_values(run, item.checkpoint, values_of(item.suite, read_evaluation(done)))
        return ExitCode.OK
    begun = (place / "plan.json").exists()
    with tracked(item.plan, place, session.registry, overwrite=begun and overwrite, command="eval") as order:
        code = execute_part(order, session, run, resume=begun and not overwrite)
    if code not in (ExitCode.OK, ExitCode.FAILED):
        return code
    place = where_it_stands(place, overwrite=overwrite)
    found = evaluate(item.plan, Evidence.of_run(place), ks=sorted({1, item.plan.group_size}))
    atomic_write(place / "eval.json", found.model_dump_json(indent=2).encode() + b"\n")
    keep_values(run, item.checkpoint, values_of(item.suite, found))
    return code
