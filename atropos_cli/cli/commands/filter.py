"""`atropos filter`: keep the rollouts that pass; the format stays, nothing is lost without being counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from atropos_cli.cli.passes import Pass, SpreadOptions, choices_of, open_out
from atropos_cli.config.commands import option
from atropos_cli.console import dataio
from atropos_cli.console.commands import JsonOption, with_flags
from atropos_cli.console.dataio import Reading, share
from atropos_cli.console.ending import again, end, shell
from atropos_cli.console.session import Session
from atropos_cli.datasets.filter.spec import GROUPS, FilterSpec
from atropos_cli.errors import ExitCode
from atropos_cli.paths import shell_file

if TYPE_CHECKING:
    from atropos_cli.cli.passes import Write
    from atropos_cli.datasets.filter.report import FilterReport
    from atropos_cli.io.records import Record
    from atropos_cli.io.writers_out import OutputSpec

_TABLE = 40


class FilterOptions(FilterSpec, dataio.SplitOptions, dataio.FormatOptions, SpreadOptions):
    """The rules, and what is read and written."""

    group: bool = option(False, "Join rows of one rollout into groups by task, or by prompt.", panel=GROUPS)
    dry_run: bool = option(False, "Report and write nothing.")
    fields: bool = option(False, "List what --where knows, and stop.")


def _print_fields() -> None:
    from atropos_cli.datasets.filter.expressions import FIELDS, FUNCTIONS

    for name, (meaning, _) in FIELDS.items():
        typer.echo(f"{name:<14} {meaning}")
    for name, (meaning, *_) in FUNCTIONS.items():
        typer.echo(f"{name + '()':<14} {meaning}")


@with_flags("filter", FilterOptions, stops={"fields": _print_fields})
def filter_rollouts(
    inputs: dataio.Inputs, *, options: FilterOptions, session: Session, as_json: JsonOption = False
) -> int:
    """Keep the rollouts that pass all rules given, in the format they came in.

    The order of the rules is that of the help, groups' spread first. A report tells what was dropped by
    which rule. Exit code 1 when nothing is left; no file is written then.
    """
    output = options.output
    dataio.check_one_stdout(output, as_json=as_json and not options.dry_run)
    reading = dataio.read_inputs(session, inputs, options, twice=options.normalize == "env")
    target = None if options.dry_run else dataio.target_of(reading.sources, options)
    try:
        report, files = _carry_out(session, reading, options, target)
    finally:
        reading.close()
    side = dataio.write_rejects(reading, target, options.rejects)
    kept = report.total.rollouts_kept
    if as_json:
        session.out.json({"read": reading.log.as_json(), **report.as_json(), "files": files})
    else:
        _print(session, reading, report, files, to_stderr=output == "-")
    for text in report.warnings:
        session.out.warning(text)
    if side is not None:
        session.out.note(f"rows left out: {side}")
    if not kept:
        reason = report.dropped.most_common(1)
        most = f"; most were dropped by: {reason[0][0]}" if reason else ""
        session.out.error(f"nothing is left of {report.total.rollouts} rollouts{most}", "loosen the rules")
        return ExitCode.FAILED
    if not as_json:
        _end(session, report, files, to_stderr=output == "-")
    return ExitCode.OK


def _end(session: Session, report: FilterReport, files: list[str], *, to_stderr: bool) -> None:
    total = report.total
    kept = f"kept {share(total.rollouts_kept, total.rollouts)} rollouts"
    kept += f", {share(total.groups_kept, total.groups)} groups"
    following = shell("sft-gen", shell_file(files[0]), "-o", "sft.jsonl") if files else None
    if not files and not to_stderr:  # a dry run
        following = f"{again(session.args)} -o kept.jsonl"
    end(session.out, kept, following, data=not to_stderr)


def _carry_out(
    session: Session, reading: Reading, options: FilterOptions, target: OutputSpec | None
) -> tuple[FilterReport, list[str]]:
    """Filter into the output; its files appear only when something was kept."""
    from atropos_cli.datasets.filter.dedup import keyed_duplicates
    from atropos_cli.datasets.filter.filtering import FilterJob, filter_records, prepare_filter
    from atropos_cli.io.card import Card

    keyed = keyed_duplicates(options.dedup, options.dedup_scope, options.near_threshold)
    choices = choices_of(session, keyed)
    job = FilterJob(reading.sources, options, reading.options, group_rows=options.group, choices=choices)
    out = open_out(session, target)
    with dataio.ticking("filter", reading) as ticker:
        work = prepare_filter(job, reading.log)

        def do(write: Write) -> None:
            def write_line(line: bytes, record: Record) -> None:
                write(line, task=record.task_key if target is not None and target.validation else "")
                ticker.tick()

            filter_records(job, work, reading.log, write_line)

        whole = Pass(session, reading, options, target, do, [work], _across(options), keyed, choices)
        try:
            whole.run(out)
            report = work.finish()
            reading.require_rows()
        except BaseException:
            if out is not None:
                out.abort()
            raise
    if out is None or not report.total.rollouts_kept:
        if out is not None:
            out.abort()
        whole.clean_up()
        return report, []
    out.commit()
    whole.clean_up()
    card = Card.of(
        "filter",
        reading.sources,
        reading.log,
        options=options.model_dump(include=set(FilterSpec.model_fields), exclude_defaults=True),
        steps=[{"rule": rule} for rule in report.rules],
        counts=report.as_json(),
        lineage="rows keep their ids and all other fields of their source",
    )
    dataio.write_cards(out, card, session)
    return report, out.names


def _across(options: FilterOptions) -> list[str]:
    """The options that compare rows of the whole input in a way that one process alone can."""
    wanted = {
        "--group": options.group,
        "--normalize env": options.normalize == "env" and bool(options.thresholds),
        "--dedup near --dedup-scope all": options.dedup == "near" and options.dedup_scope == "all",
        "--max-per-task": options.max_per_task is not None,
        "--balance": options.balance != "none",
    }
    return [name for name, given in wanted.items() if given]


def _print(session: Session, reading: Reading, report: FilterReport, files: list[str], *, to_stderr: bool) -> None:
    say = session.out.note if to_stderr else session.out.data
    for line in dataio.read_lines(reading.log):
        say(line)
    say("rules: " + ("; ".join(report.rules) or "none"))
    if report.dropped:
        say("dropped:")
        for reason, count in report.dropped.most_common():
            say(f"  {count:>8}  {reason}")
    if len(report.by_name) > 1:
        say("by task:")
    for name, tally in sorted(report.by_name.items(), key=lambda item: -item[1].rollouts)[:_TABLE]:
        if len(report.by_name) > 1:
            mean = f", mean score {tally.score_sum / tally.scored:.3g}" if tally.scored else ""
            groups = share(tally.groups_kept, tally.groups)
            say(f"  {name}: {share(tally.rollouts_kept, tally.rollouts)} rollouts, {groups} groups{mean}")
    if len(report.by_name) > _TABLE:
        say(f"  and {len(report.by_name) - _TABLE} more; --json has them all")
    for path in files:
        say(f"wrote {path}")
