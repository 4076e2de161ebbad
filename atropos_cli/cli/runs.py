"""What `gen` and `run` share: carry out a plan, show how it goes, print what came out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.cli.output import Output
from atropos_cli.cli.session import Session
from atropos_cli.errors import ExitCode

if TYPE_CHECKING:
    from atropos_cli.domain.plan import Plan
    from atropos_cli.domain.run import RunSummary


def carry_out(
    plan: Plan,
    folder: Path | None,
    session: Session,
    *,
    as_json: bool = False,
    resume: bool = False,
    overwrite: bool = False,
) -> int:
    """Run the plan and return the exit code. folder None: groups to stdout."""
    from atropos_cli.cli.progress import make_reporter
    from atropos_cli.engine.runner import run_gen
    from atropos_cli.io.rundir import where_it_stands

    reporter = make_reporter("stdout" if folder is None else str(folder))
    try:
        summary = run_gen(
            plan, folder=folder, registry=session.registry, resume=resume, overwrite=overwrite, reporter=reporter
        )
    except BrokenPipeError:
        reporter.close()
        raise
    except BaseException:
        reporter.conclude()
        raise
    reporter.conclude()
    if folder is not None:
        folder = where_it_stands(folder, overwrite=overwrite)
    if as_json:
        session.out.json({"run": None if folder is None else str(folder), **summary.model_dump(mode="json")})
    if summary.state == "interrupted" and summary.stopped is not None:
        session.out.note(stopped_text(summary, folder, plan))
        return ExitCode.INTERRUPTED
    if summary.state == "interrupted":
        total = "" if summary.groups_total is None else f" of {summary.groups_total}"
        saved = f": {summary.groups_done}{total} groups are saved; go on with --resume --output {folder}"
        session.out.note("interrupted" + (saved if folder is not None else ""))
        return ExitCode.INTERRUPTED
    if summary.state == "failed":
        why = f"{summary.rollouts_failed} of {summary.rollouts} rollouts failed"
        where = "" if folder is None else f"see {folder}/failures.jsonl, or "
        session.out.error(f"the run failed: {why}", f"{where}allow some with --max-failure-rate 0.1")
        return ExitCode.FAILED
    return ExitCode.OK


def stopped_text(summary: RunSummary, folder: Path | None, plan: Plan) -> str:
    """Where the cost limit ended the run, and how it goes on."""
    total = "" if summary.groups_total is None else f" of {summary.groups_total}"
    text = f"{summary.stopped}; {summary.groups_done}{total} groups are done"
    if folder is None:
        return text
    # Of the whole run, not of a shard's share. Where not one request fitted, twice as much may not do either.
    more = f"{2 * (plan.execution.max_cost or 0):g}" if summary.cost else "MORE"
    return f"{text}; --resume --output {folder} --max-cost {more} continues"


def print_plan(plan: Plan, out: Output, *, as_json: bool) -> None:
    """The plan as JSON, or as one `key: value` a line."""
    data: dict[str, Any] = {"digest": plan.digest, **plan.model_dump(mode="json")}
    if as_json:
        out.json(data)
        return
    out.details(dict(flattened(data)))


def flattened(data: Any, key: str = "") -> list[tuple[str, str]]:
    """Nested values as (dotted key, text); lists of records are numbered, empty ones left out."""
    if isinstance(data, dict):
        return [row for name, value in data.items() for row in flattened(value, f"{key}.{name}" if key else name)]
    if isinstance(data, list) and any(isinstance(item, dict) for item in data):
        return [row for number, item in enumerate(data) for row in flattened(item, f"{key}.{number}")]
    if data is None or data == [] or data == {}:
        return []
    return [(key, data if isinstance(data, str) else json.dumps(data, ensure_ascii=False))]
