"""`atropos filter`: keep the rollouts that pass; the format stays, nothing is lost without being counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli.options import JsonOption
from atropos_cli.console import dataio
from atropos_cli.console.dataio import Reading, share
from atropos_cli.console.ending import again, end, shell
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import ExitCode
from atropos_cli.paths import shell_file

if TYPE_CHECKING:
    from atropos_cli.datasets.filter.filtering import FilterReport
    from atropos_cli.datasets.filter.rules import FilterSpec
    from atropos_cli.io.records import Record
    from atropos_cli.io.writers_out import OutputSpec

SCORES, ROLLOUTS, GROUPS, DATA = "Scores", "Single rollouts", "Groups", "Over all data"
_TABLE = 40


def _option(*names: str, panel: str, text: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, help=text, show_default=False, **more)


def _print_fields(value: bool) -> None:
    if value:
        from atropos_cli.datasets.filter.expressions import FIELDS, FUNCTIONS

        for name, (meaning, _) in FIELDS.items():
            typer.echo(f"{name:<14} {meaning}")
        for name, (meaning, *_) in FUNCTIONS.items():
            typer.echo(f"{name + '()':<14} {meaning}")
        raise typer.Exit


def filter_rollouts(
    ctx: typer.Context,
    inputs: dataio.Inputs,
    output: dataio.OutputOption = None,
    min_score: Annotated[float | None, _option("--min-score", panel=SCORES, text="Keep score >= this.")] = None,
    above: Annotated[float | None, _option("--above", panel=SCORES, text="Keep score > this.")] = None,
    max_score: Annotated[float | None, _option("--max-score", panel=SCORES, text="Keep score <= this.")] = None,
    below: Annotated[float | None, _option("--below", panel=SCORES, text="Keep score < this.")] = None,
    normalize: Annotated[
        str,
        typer.Option(
            "--normalize",
            metavar="none|group|env",
            rich_help_panel=SCORES,
            help="Compare scores scaled to 0..1 over their group or environment.",
        ),
    ] = "none",
    min_gap: Annotated[
        float | None, _option("--min-gap", panel=SCORES, text="Keep score > the group's worst + this.")
    ] = None,
    drop_failed: Annotated[bool, _option("--drop-failed", panel=ROLLOUTS, text="Leave out failed rollouts.")] = False,
    drop_truncated: Annotated[
        bool, _option("--drop-truncated", panel=ROLLOUTS, text="Leave out rollouts that were cut off.")
    ] = False,
    finish_reason: Annotated[
        list[str] | None,
        _option("--finish-reason", panel=ROLLOUTS, text='Keep these; "unknown" is none. Repeatable.', metavar="NAME"),
    ] = None,
    min_chars: Annotated[int | None, _option("--min-chars", panel=ROLLOUTS, text="Of the completion.", min=0)] = None,
    max_chars: Annotated[int | None, _option("--max-chars", panel=ROLLOUTS, text="Of the completion.", min=0)] = None,
    min_words: Annotated[int | None, _option("--min-words", panel=ROLLOUTS, text="Of the completion.", min=0)] = None,
    max_words: Annotated[int | None, _option("--max-words", panel=ROLLOUTS, text="Of the completion.", min=0)] = None,
    min_tokens: Annotated[
        int | None, _option("--min-tokens", panel=ROLLOUTS, text="Sampled tokens, as stored.", min=0)
    ] = None,
    max_tokens: Annotated[
        int | None, _option("--max-tokens", panel=ROLLOUTS, text="Sampled tokens, as stored.", min=0)
    ] = None,
    match: Annotated[
        list[str] | None,
        _option("--match", panel=ROLLOUTS, text="Regular expression that the completion holds. Repeatable."),
    ] = None,
    no_match: Annotated[
        list[str] | None,
        _option("--no-match", panel=ROLLOUTS, text="Regular expression that it does not hold. Repeatable."),
    ] = None,
    where: Annotated[
        list[str] | None,
        _option(
            "--where",
            panel=ROLLOUTS,
            metavar="EXPR",
            text="score >= 0.5 and env == 'math' and len(text) < 2000; see --fields. Repeatable.",
        ),
    ] = None,
    drop_equal: Annotated[
        bool, _option("--drop-equal", panel=GROUPS, text="Leave out groups whose scores do not differ.")
    ] = False,
    min_spread: Annotated[
        float | None, _option("--min-spread", panel=GROUPS, text="Keep groups with best - worst >= this.")
    ] = None,
    top_k: Annotated[
        int | None, _option("--top-k", panel=GROUPS, text="Best k of each group; ties: the first.", min=1)
    ] = None,
    best_of_n: Annotated[
        bool, _option("--best-of-n", panel=GROUPS, text="Best of each group; ties: the shorter, then the first.")
    ] = False,
    min_group: Annotated[
        int | None, _option("--min-group", panel=GROUPS, text="Keep groups with so many rollouts left.", min=1)
    ] = None,
    group_rows: Annotated[
        bool,
        _option("--group", panel=GROUPS, text="Join rows of one rollout into groups by task, or by prompt."),
    ] = False,
    dedup: Annotated[
        str,
        typer.Option(
            "--dedup", metavar="none|exact|near", rich_help_panel=DATA, help="Leave out duplicates; the first stays."
        ),
    ] = "none",
    dedup_scope: Annotated[
        str,
        typer.Option("--dedup-scope", metavar="task|all", rich_help_panel=DATA, help="Compare within a task or all."),
    ] = "task",
    near_threshold: Annotated[
        float, typer.Option("--near-threshold", min=0.1, max=1.0, rich_help_panel=DATA, help="Jaccard similarity.")
    ] = 0.8,
    decontaminate: Annotated[
        list[str] | None,
        _option(
            "--decontaminate",
            panel=DATA,
            metavar="FILE",
            text="Leave out what overlaps this evaluation file. Repeatable.",
        ),
    ] = None,
    ngram: Annotated[int, typer.Option("--ngram", min=3, rich_help_panel=DATA, help="Words that must overlap.")] = 13,
    max_per_task: Annotated[
        int | None, _option("--max-per-task", panel=DATA, text="Rollouts of a task, over all groups.", min=1)
    ] = None,
    balance: Annotated[
        str,
        typer.Option(
            "--balance", metavar="none|env|task_name|task", rich_help_panel=DATA, help="Equal numbers of each kind."
        ),
    ] = "none",
    cap_by: Annotated[
        str,
        typer.Option(
            "--cap-by", metavar="score|first|random", rich_help_panel=DATA, help="What the two options above keep."
        ),
    ] = "score",
    seed: Annotated[int, typer.Option("--seed", rich_help_panel=DATA, help="Seed of a random choice.")] = 0,
    form: dataio.FormatOption = "auto",
    tolerant: dataio.TolerantOption = False,
    strict: dataio.StrictOption = False,
    rejects: dataio.RejectsOption = None,
    kind: dataio.KindOption = None,
    overwrite: dataio.OverwriteOption = False,
    shard_size: dataio.ShardOption = None,
    validation: dataio.ValidationOption = 0.0,
    split_seed: dataio.SplitSeedOption = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report and write nothing.")] = False,
    fields: Annotated[
        bool,
        typer.Option("--fields", callback=_print_fields, is_eager=True, help="List what --where knows, and stop."),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Keep the rollouts that pass all rules given, in the format they came in.

    The order of the rules is that of the help, groups' spread first. A report tells what was dropped by
    which rule. Exit code 1 when nothing is left; no file is written then.
    """
    from atropos_cli.datasets.filter.rules import FilterSpec

    session = session_of(ctx)
    spec = FilterSpec(
        min_score=min_score,
        max_score=max_score,
        above=above,
        below=below,
        normalize=dataio.one_of("--normalize", normalize, ("none", "group", "env")),
        drop_failed=drop_failed,
        drop_truncated=drop_truncated,
        finish_reasons=tuple(finish_reason or ()),
        min_chars=min_chars,
        max_chars=max_chars,
        min_words=min_words,
        max_words=max_words,
        min_tokens=min_tokens,
        max_tokens=max_tokens,
        match=tuple(match or ()),
        no_match=tuple(no_match or ()),
        where=tuple(where or ()),
        drop_equal=drop_equal,
        min_spread=min_spread,
        min_gap=min_gap,
        top_k=top_k,
        best_of_n=best_of_n,
        min_group=min_group,
        dedup=dataio.one_of("--dedup", dedup, ("none", "exact", "near")),
        dedup_scope=dataio.one_of("--dedup-scope", dedup_scope, ("task", "all")),
        near_threshold=near_threshold,
        decontaminate=tuple(decontaminate or ()),
        ngram=ngram,
        max_per_task=max_per_task,
        balance=dataio.one_of("--balance", balance, ("none", "env", "task_name", "task")),
        cap_by=dataio.one_of("--cap-by", cap_by, ("score", "first", "random")),
        seed=seed,
    )
    dataio.check_one_stdout(output, as_json=as_json and not dry_run)
    reading = dataio.open_inputs(
        session, inputs, form=form, tolerant=tolerant, strict=strict, twice=spec.normalize == "env"
    )
    target = None
    if not dry_run:
        target = dataio.output_spec(
            reading.sources,
            output,
            kind,
            overwrite=overwrite,
            shard_size=shard_size,
            validation=validation,
            split_seed=split_seed,
        )
    try:
        report, files = _carry_out(session, reading, spec, target, group_rows=group_rows)
    finally:
        reading.close()
    side = dataio.write_rejects(reading, target, rejects)
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
    session: Session, reading: Reading, spec: FilterSpec, target: OutputSpec | None, *, group_rows: bool
) -> tuple[FilterReport, list[str]]:
    """Filter into the output; its files appear only when something was kept."""
    from atropos_cli.datasets.filter.filtering import FilterJob, run_filter
    from atropos_cli.io.card import Card
    from atropos_cli.io.writers_out import open_output

    job = FilterJob(reading.sources, spec, reading.options, group_rows=group_rows)
    out = open_output(target) if target is not None else None
    with dataio.ticking("filter", reading) as ticker:

        def write(line: bytes, record: Record) -> None:
            if out is not None:
                out.write(line, task=record.task_key if target is not None and target.validation else "")
            ticker.tick()

        try:
            report = run_filter(job, reading.log, write)
            reading.require_rows()
        except BaseException:
            if out is not None:
                out.abort()
            raise
    if out is None:
        return report, []
    if not report.total.rollouts_kept:
        out.abort()
        return report, []
    out.commit()
    card = Card.of(
        "filter",
        reading.sources,
        reading.log,
        options=_given(spec),
        steps=[{"rule": rule} for rule in report.rules],
        counts=report.as_json(),
        lineage="rows keep their ids and all other fields of their source",
    )
    dataio.write_cards(out, card, session)
    return report, out.names


def _given(spec: FilterSpec) -> dict[str, Any]:
    """The options that differ from their defaults."""
    from dataclasses import asdict

    default = asdict(type(spec)())
    return {name: value for name, value in asdict(spec).items() if value != default[name]}


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
