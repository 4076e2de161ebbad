"""What `gen` and `run` share: carry out a plan, show how it goes, print what came out."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.console.ending import again, command_name, end, no_spread, reward_headline, shell, without_option
from atropos_cli.console.output import Output
from atropos_cli.console.session import Session
from atropos_cli.errors import ExitCode
from atropos_cli.paths import shell_word

_BY_THEMSELVES = ("run", "reevaluate")
"""Commands that go on with what is there without --resume."""

if TYPE_CHECKING:
    from atropos_cli.domain.plan import Plan
    from atropos_cli.domain.run import RunSummary
    from atropos_cli.runs.tracked import RunTracking


def carry_out(
    plan: Plan,
    folder: Path | None,
    session: Session,
    *,
    as_json: bool = False,
    resume: bool = False,
    overwrite: bool = False,
) -> int:
    """Run the plan, say what came out, return the exit code. folder None: groups to stdout."""
    from atropos_cli.runs.tracked import tracked

    with tracked(plan, folder, session.registry, overwrite=overwrite) as order:
        summary, folder = _run(order, session, resume=resume)
    if as_json:
        session.out.json({"run": None if folder is None else str(folder), **summary.model_dump(mode="json")})
    code = _broken_off(summary, folder, folder, session, limit=plan.execution.max_cost)
    if code == ExitCode.OK:
        if (warning := no_spread(summary, temperature=plan.sampling.temperature)) is not None:
            session.out.note(f"note: {warning}")
        end(session.out, reward_headline(summary), None if folder is None else shell("view", folder))
    return code


def execute_part(order: RunTracking, session: Session, whole: Path, *, resume: bool = False) -> int:
    """Run the plan for a command that says by itself what came out. whole: the folder that it goes on with."""
    summary, place = _run(order, session, resume=resume)
    limit = order.plan.execution.max_cost
    return _broken_off(summary, place, place if whole == order.folder else whole, session, limit=limit)


def _run(order: RunTracking, session: Session, *, resume: bool) -> tuple[RunSummary, Path | None]:
    """The summary, and the folder in which the run is now."""
    from atropos_cli.cli.progress import make_reporter
    from atropos_cli.io.rundir import where_it_stands
    from atropos_cli.rollout.runner import run_gen

    plan, folder, overwrite = order.plan, order.folder, order.overwrite
    reporter = make_reporter("stdout" if folder is None else str(folder), session.out, data=folder is None)
    told = order.reporting(reporter)
    try:
        summary = run_gen(
            plan, folder=folder, registry=session.registry, resume=resume, overwrite=overwrite, reporter=told
        )
    except BrokenPipeError:
        reporter.close()
        raise
    except BaseException:
        reporter.conclude()
        raise
    reporter.conclude()
    return summary, None if folder is None else where_it_stands(folder, overwrite=overwrite)


def _broken_off(
    summary: RunSummary, folder: Path | None, whole: Path | None, session: Session, *, limit: float | None
) -> ExitCode:
    """Say so when a run did not come to its end, and how to go on; the exit code. limit: --max-cost of the whole."""
    if summary.state == "interrupted":
        groups = f"{summary.groups_done}{'' if summary.groups_total is None else f' of {summary.groups_total}'} groups"
        following = None if whole is None else resuming(session.args, whole)
        if summary.stopped is not None:
            headline = f"{summary.stopped}; {groups} are done"
            if whole is not None:
                following = _with_more(summary, session.args, whole, limit or 0.0)
        else:
            headline = "interrupted" if whole is None else f"interrupted: {groups} are saved"
        end(session.out, headline, following)
        return ExitCode.INTERRUPTED
    if summary.state == "failed":
        why = f"{summary.rollouts_failed} of {summary.rollouts} rollouts failed"
        see = [] if folder is None else [f"see {shell_word(folder / 'failures.jsonl')}"]
        if summary.rollouts_failed < summary.rollouts:
            allowed = math.ceil(100 * summary.rollouts_failed / summary.rollouts) / 100
            see.append(f"allow so many with --max-failure-rate {allowed:g}")
        session.out.error(f"the run failed: {why}", ", or ".join(see) or None)
        return ExitCode.FAILED
    return ExitCode.OK


def resuming(args: Sequence[str], folder: Path) -> str:
    """The command that goes on with what the folder holds: the one that was given, with --resume."""
    if not args:
        return shell("run", folder)
    return again(args) if command_name(args) in _BY_THEMSELVES else again(args, folder)


def _with_more(summary: RunSummary, args: Sequence[str], folder: Path, limit: float) -> str:
    """How to go on where --max-cost ended the run: with a limit that what comes next fits below."""
    share = summary.max_cost or limit
    needed = (summary.next_cost or 0.0) * (limit / share if share else 1.0)  # a shard has a share of the whole's limit
    more = rounded_up(2 * (limit if needed <= 2 * limit else needed))
    if command_name(args) not in _BY_THEMSELVES:
        return f"{resuming(without_option(args, '--max-cost')[0], folder)} --max-cost {more}"
    return f'write "max_cost": {more} into {shell_word(folder / "plan.json")}, then {resuming(args, folder)}'


def rounded_up(value: float) -> str:
    """Two digits of an amount that cover it, without an exponent where it has a point."""
    if value <= 0:
        return "1"
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    digits = max(0, 1 - math.floor(math.log10(value)))
    text = f"{math.ceil(value / unit - 1e-9) * unit:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


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
