"""`atropos merge`: shards of a run become a run; files of one format become a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from atropos_cli.console import dataio
from atropos_cli.console.commands import JsonOption, with_flags
from atropos_cli.console.dataio import Reading
from atropos_cli.console.ending import counted, end, shell
from atropos_cli.console.session import Session
from atropos_cli.errors import UsageError
from atropos_cli.paths import shell_file

if TYPE_CHECKING:
    from atropos_cli.datasets.merging import MergeReport
    from atropos_cli.io.records import Record
    from atropos_cli.io.writers_out import OutputSpec


class MergeOptions(dataio.SplitOptions, dataio.FormatOptions):
    """What is read and written."""


@with_flags("merge", MergeOptions)
def merge(inputs: dataio.Inputs, *, options: MergeOptions, session: Session, as_json: JsonOption = False) -> int:
    """Join run folders of one plan into a run folder, or files of one format into a file.

    Doubles are dropped by id. Groups that have the same id and differ are reported, and an error with --strict.
    """
    from atropos_cli.io.writers_out import has_data_ending

    output = options.output
    dataio.check_one_stdout(output, as_json=as_json)
    reading = dataio.read_inputs(session, inputs, options)
    runs = [source for source in reading.sources if source.run is not None and (source.run / "plan.json").exists()]
    if runs and len(runs) < len(reading.sources):
        other = next(source for source in reading.sources if source not in runs)
        raise UsageError(f"{other.name} is no run folder, the other inputs are", hint="merge runs, or files")
    if runs and output is not None and output != "-" and options.write is None and not has_data_ending(output):
        report, files = _merge_runs(reading, output, overwrite=options.overwrite, strict=options.strict)
    else:
        spec = dataio.target_of(reading.sources, options)
        report, files = _merge_files(session, reading, spec)
        dataio.write_rejects(reading, spec, options.rejects)
    for text in report.conflicts:
        session.out.warning(text)
    if report.conflict_count > len(report.conflicts):
        session.out.warning(f"and {report.conflict_count - len(report.conflicts)} more ids with differing content")
    if as_json:
        session.out.json({**report.as_json(), "files": files})
    else:
        _print(session, report, files, to_stderr=output == "-")
    return 0


def _merge_runs(reading: Reading, output: str, *, overwrite: bool, strict: bool) -> tuple[MergeReport, list[str]]:
    from atropos_cli.datasets.merging import RunMerge
    from atropos_cli.io.rundir import open_run

    target = Path(output)
    for source in reading.sources:
        if source.run is not None and target.exists() and target.samefile(source.run):
            raise UsageError(f"{output} is an input: the input is never changed", hint="give another -o")
    work = RunMerge(reading.sources)
    run = open_run(target, overwrite=overwrite)
    try:
        report = work.write(run, strict=strict)
        run.promote()
    except BaseException:
        _discard(run.folder)
        raise
    finally:
        run.close()
    return report, [output]


def _discard(folder: Path) -> None:
    """A merge that failed leaves no half run behind."""
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _merge_files(session: Session, reading: Reading, spec: OutputSpec) -> tuple[MergeReport, list[str]]:
    from atropos_cli.datasets.merging import merge_files
    from atropos_cli.io.card import Card
    from atropos_cli.io.writers_out import open_output

    with dataio.ticking("merge", reading) as ticker, open_output(spec) as out:

        def write(line: bytes, record: Record) -> None:
            out.write(line, task=record.task_key if spec.validation else "")
            ticker.tick()

        report = merge_files(reading.sources, reading.options, reading.log, write)
        reading.require_rows()
    card = Card.of(
        "merge",
        reading.sources,
        reading.log,
        steps=[{"step": "doubles dropped by id", "dropped": report.doubles}],
        counts=report.as_json(),
        lineage="rows keep their ids and all fields",
    )
    dataio.write_cards(out, card, session)
    return report, out.names


def _print(session: Session, report: MergeReport, files: list[str], *, to_stderr: bool) -> None:
    say = session.out.note if to_stderr else session.out.data
    for name in report.inputs:
        say(f"  {report.by_input[name]:>8}  {name}")
    if report.doubles:
        say(f"dropped {report.doubles} doubles")
    if report.torn:
        say(f"left out {report.torn} torn tails")
    if report.missing:
        say(f"{report.missing} tasks of the plan are missing")
    for path in files:
        say(f"wrote {path}")
    headline = f"merged {report.kept} groups or rows of {counted(len(report.inputs), 'input')}"
    end(session.out, headline, shell("analyze", shell_file(files[0])) if files else None, data=not to_stderr)
