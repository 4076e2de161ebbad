"""`atropos analyze`: what is in stored rollouts, environment by environment, as a table, JSON, a page or pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from atropos_cli.sdk import DataError, UsageError
from atropos_cli.sdk.commands import (
    WRITING,
    FormatOptions,
    Inputs,
    JsonOption,
    Session,
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
    from atropos_view.analysis.analysis import Report
    from atropos_view.analysis.options import AnalysisOptions

MEASURES = "What is measured"


class AnalyzeOptions(FormatOptions):
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
    png: Path | None = option(None, "Write the charts as pictures; needs matplotlib.", panel=WRITING, metavar="FOLDER")
    overwrite: bool = option(False, "Replace an existing output.", panel=WRITING)


@with_flags("analyze", AnalyzeOptions)
def analyze(inputs: Inputs, *, options: AnalyzeOptions, session: Session, as_json: JsonOption = False) -> None:
    """Describe stored rollouts: rewards, groups without spread, pass@k, lengths, failures, episodes.

    Everything is kept apart by environment. One pass; memory does not grow with the input. Plugins may add tables
    and charts for their environments.
    """
    from atropos_cli.sdk.data import LostGroups, read_records
    from atropos_view.analysis.analysis import Analysis
    from atropos_view.analysis.png import require_matplotlib

    html, png = options.html, options.png
    measured = _measured(options)
    if png is not None:
        require_matplotlib()
    for path in (html, png):
        _check_output(path, folder=path is png, overwrite=options.overwrite)
    reading = read_inputs(session, inputs, options)
    if html is not None:
        keep_inputs(reading.sources, html, str(html), "--html")
    wanted = set(options.env)
    with (
        ticking("analyze", reading) as ticker,
        Analysis(measured, LostGroups(reading.sources), lambda name: session.registry.analyzers(name)) as analysis,
    ):
        for record in read_records(reading.sources, reading.options, reading.log):
            analysis.add(record, wanted)
            ticker.tick()
        report = analysis.report(wanted)
    if not report.environments:
        reading.require_rows()
    missing = wanted - set(report.environments)
    if missing:
        there = [*report.environments, *analysis.skipped]
        raise DataError(f"no rollouts of {', '.join(sorted(missing))}", hint=f"there are: {', '.join(there)}")
    side = write_rejects(reading, None, options.rejects)
    title = inputs[0] if len(inputs) == 1 else f"{inputs[0]} and {len(inputs) - 1} more"
    files = _write(report, title, read_lines(reading.log), html, png)
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
    if png is not None:
        session.out.note(f"wrote {len(files) - (html is not None)} pictures to {png}")
    headline, following = analysis_end(report, inputs)
    end(session.out, headline, following, data=True)


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
        raise DataError(f"{path} is a file, not a folder", hint="give another --png")
    if not folder and path.is_dir():
        raise DataError(f"{path} is a folder", hint="give a file to --html")
    if path.exists() and not overwrite and (not folder or any(path.iterdir())):
        raise DataError(f"{path} is already there", hint="--overwrite replaces it")


def _write(report: Report, title: str, read: list[str], html: Path | None, png: Path | None) -> list[Path]:
    """The page and the pictures that were asked for; returns their paths."""
    from atropos_cli.sdk.commands import safe_name
    from atropos_cli.sdk.data import atomic_write, make_folder
    from atropos_view.analysis.charts import charts_of
    from atropos_view.analysis.page import page
    from atropos_view.analysis.png import png as picture

    files = []
    if html is not None:
        make_folder(html.parent)
        atomic_write(html, page(report, title, read).encode("utf-8", "replace"))
        files.append(html)
    if png is not None:
        make_folder(png)
        for name, environment in report.environments.items():
            for chart in charts_of(environment):
                path = png / f"{safe_name(name)}-{safe_name(chart.name)}.png"
                atomic_write(path, picture(chart, name))
                files.append(path)
    return files
