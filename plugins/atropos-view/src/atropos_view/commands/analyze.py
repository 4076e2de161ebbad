"""`atropos analyze`: what is in stored rollouts, environment by environment, as a table, JSON, a page or pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import DataError, UsageError
from atropos_cli.sdk.commands import (
    WRITING,
    FormatOptions,
    Inputs,
    JsonOption,
    Pass,
    Session,
    SpreadOptions,
    end,
    keep_inputs,
    option,
    read_inputs,
    read_lines,
    ticking,
    with_flags,
    write_rejects,
)
from atropos_view.analysis.text import analysis_end, print_report

if TYPE_CHECKING:
    from atropos_view.analysis.analysis import Analysis, Report
    from atropos_view.analysis.options import AnalysisOptions

MEASURES = "What is measured"


class AnalyzeOptions(FormatOptions, SpreadOptions):
    """What is measured, and what is written."""

    success: str = option(
        "auto",
        "What counts as a success: field:NAME (the environment's own verdict), >=NUMBER or >NUMBER (a reward), max "
        "(the highest reward seen). auto: the own verdict, else full marks by the run's plan, as `atropos eval` does; "
        "for files without a plan the own verdict where every rollout has one, else max. Of turns of an episode "
        "only the episode's verdict counts.",
        panel=MEASURES,
        metavar="RULE",
    )
    keep: tuple[str, ...] = option(
        (),
        'Tell how many rollouts and groups a threshold would keep.  [default: ">0", ">=0.5", ">=1"]',
        panel=MEASURES,
        metavar="THRESHOLD",
    )
    k: str | None = option(
        None,
        "k of pass@k and pass^k.  [default: 1, 2, 4, ... up to the rollouts of a task]",
        panel=MEASURES,
        metavar="K,K,...",
    )
    count_failed: bool = option(False, "Failed rollouts count as no success, not left out.", panel=MEASURES)
    top: int = option(5, "Best and worst tasks to list.", panel=MEASURES, ge=0, le=1000)
    env: tuple[str, ...] = option((), "Only this environment.", panel=MEASURES)
    html: Path | None = option(
        None, "Write one page with tables and charts; it loads nothing.", panel=WRITING, metavar="FILE"
    )
    svg: Path | None = option(None, "Write each chart as a picture in SVG.", panel=WRITING, metavar="FOLDER")
    png: Path | None = option(None, "The old name of --svg.", panel=WRITING, metavar="FOLDER", hidden=True)
    overwrite: bool = option(False, "Replace an existing output.", panel=WRITING)


@with_flags("analyze", AnalyzeOptions)
def analyze(inputs: Inputs, *, options: AnalyzeOptions, session: Session, as_json: JsonOption = False) -> None:
    """Describe stored rollouts: rewards, groups without spread, pass@k, lengths, failures, episodes.

    Everything is kept apart by environment. One pass; memory does not grow with the input. Plugins may add tables
    and charts for their environments.
    """
    from atropos_cli.sdk.data import LostGroups, read_records
    from atropos_view.analysis.analysis import Analysis

    html, svg = options.html, options.svg or options.png
    measured = _measured(options)
    if options.png is not None:
        session.out.note("--png is now --svg: the charts are written as SVG")
    for path in (html, svg):
        _check_output(path, folder=path is svg, overwrite=options.overwrite)
    reading = read_inputs(session, inputs, options)
    if html is not None:
        keep_inputs(reading.sources, html, str(html), "--html")
    wanted = set(options.env)
    with (
        ticking("analyze", reading) as ticker,
        Analysis(measured, LostGroups(reading.sources), lambda name: session.registry.analyzers(name)) as analysis,
    ):

        def do(write: object) -> None:
            for record in read_records(reading.sources, reading.options, reading.log):
                analysis.add(record, wanted)
                ticker.tick()

        whole = Pass(session, reading, options, None, do, [_Counted(analysis, session)])
        whole.run(None)
        report = analysis.report(wanted)
    if not report.environments:
        reading.require_rows()
    missing = wanted - set(report.environments)
    if missing:
        there = [*report.environments, *analysis.skipped]
        raise DataError(f"no rollouts of {', '.join(sorted(missing))}", hint=f"there are: {', '.join(there)}")
    side = write_rejects(reading, None, options.rejects)
    whole.clean_up()
    title = inputs[0] if len(inputs) == 1 else f"{inputs[0]} and {len(inputs) - 1} more"
    files = _write(report, title, read_lines(reading.log), html, svg)
    if as_json:
        session.out.json({"read": reading.log.as_json(), **report.as_json(), "files": [str(path) for path in files]})
        return
    for line in read_lines(reading.log):
        session.out.data(line)
    print_report(report, session.out)
    if side is not None:
        session.out.note(f"rows left out: {side}")
    if html is not None:
        session.out.note(f"wrote {html}")
    if svg is not None:
        session.out.note(f"wrote {len(files) - (html is not None)} pictures to {svg}")
    headline, following = analysis_end(report, inputs)
    end(session.out, headline, following, data=True)


class _Counted:
    """An analysis whose counts come from shards, or go from one."""

    def __init__(self, analysis: Analysis, session: Session) -> None:
        self._analysis = analysis
        self._part = session.part

    def tally(self) -> Any:
        """The counts of this shard; many of them in a file beside its result."""
        assert self._part is not None
        return self._analysis.state(self._part.folder / "totals.jsonl")

    def absorb(self, state: Any) -> None:
        """Add the counts of a shard."""
        self._analysis.absorb(state)


def _measured(options: AnalyzeOptions) -> AnalysisOptions:
    from atropos_cli.sdk.analysis import SuccessRule, parse_threshold
    from atropos_view.analysis.options import AnalysisOptions

    measured = AnalysisOptions(
        SuccessRule.parse(options.success), ks=_ks(options.k), top=options.top, count_failed=options.count_failed
    )
    if options.keep:
        thresholds = dict.fromkeys(parse_threshold(text, "--keep") for text in options.keep)
        return replace(measured, thresholds=tuple(thresholds))
    return measured


def _ks(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        ks = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise UsageError(f"--k {text!r} is not a list of whole numbers", hint="--k 1,4,16") from None
    if ks[0] < 1:
        raise UsageError(f"--k {text!r}: k must be at least 1", hint="--k 1,4,16")
    return tuple(ks)


def _check_output(path: Path | None, *, folder: bool, overwrite: bool) -> None:
    """Refuse early what could not be written after a long pass."""
    if path is None:
        return
    if folder and path.exists() and not path.is_dir():
        raise DataError(f"{path} is a file, not a folder", hint="give another --svg")
    if not folder and path.is_dir():
        raise DataError(f"{path} is a folder", hint="give a file to --html")
    if path.exists() and not overwrite and (not folder or any(path.iterdir())):
        raise DataError(f"{path} is already there", hint="--overwrite replaces it")


def _write(report: Report, title: str, read: list[str], html: Path | None, svg: Path | None) -> list[Path]:
    """The page and the pictures that were asked for; returns their paths."""
    from atropos_cli.sdk.analysis import chart_document
    from atropos_cli.sdk.commands import safe_name
    from atropos_cli.sdk.data import atomic_write, make_folder
    from atropos_view.analysis.charts import charts_of
    from atropos_view.analysis.page import page

    files = []
    if html is not None:
        make_folder(html.parent)
        atomic_write(html, page(report, title, read).encode("utf-8", "replace"))
        files.append(html)
    if svg is not None:
        make_folder(svg)
        for name, environment in report.environments.items():
            for chart in charts_of(environment):
                path = svg / f"{safe_name(name)}-{safe_name(chart.name)}.svg"
                atomic_write(path, chart_document([chart], name).encode("utf-8", "replace"))
                files.append(path)
    return files
