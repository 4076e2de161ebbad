"""`atropos analyze`: what is in stored rollouts, environment by environment, as a table, JSON, a page or pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atropos_cli.cli.analysis_text import analysis_end, print_report
from atropos_cli.cli.options import JsonOption
from atropos_cli.console import dataio
from atropos_cli.console.ending import end
from atropos_cli.console.session import session_of
from atropos_cli.errors import DataError, UsageError

if TYPE_CHECKING:
    from atropos_cli.analysis.analysis import Report
    from atropos_cli.analysis.options import AnalysisOptions

MEASURES = "What is measured"


def analyze(
    ctx: typer.Context,
    inputs: dataio.Inputs,
    success: Annotated[
        str,
        typer.Option(
            "--success",
            metavar="RULE",
            rich_help_panel=MEASURES,
            help="What counts as a success: field:NAME (the environment's own verdict), >=NUMBER or >NUMBER "
            "(a reward), max (the highest reward seen). auto: the own verdict, else full marks by the run's plan, as "
            "`atropos eval` does; for files without a plan the own verdict where every rollout has one, else max. Of "
            "turns of an episode only the episode's verdict counts.",
        ),
    ] = "auto",
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="THRESHOLD",
            rich_help_panel=MEASURES,
            show_default=False,
            help="Tell how many rollouts and groups a threshold would keep. Repeatable.  "
            '[default: ">0", ">=0.5", ">=1"]',
        ),
    ] = None,
    ks: Annotated[
        str | None,
        typer.Option(
            "--k",
            metavar="K,K,...",
            rich_help_panel=MEASURES,
            show_default=False,
            help="k of pass@k and pass^k.  [default: 1, 2, 4, ... up to the rollouts of a task]",
        ),
    ] = None,
    count_failed: Annotated[
        bool,
        typer.Option(
            "--count-failed", rich_help_panel=MEASURES, help="Failed rollouts count as no success, not left out."
        ),
    ] = False,
    top: Annotated[
        int, typer.Option("--top", min=0, max=1000, rich_help_panel=MEASURES, help="Best and worst tasks to list.")
    ] = 5,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", rich_help_panel=MEASURES, show_default=False, help="Only this environment. Repeatable."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            rich_help_panel=dataio.WRITING,
            show_default=False,
            help="Write one page with tables and charts; it loads nothing.",
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            "--png",
            metavar="FOLDER",
            rich_help_panel=dataio.WRITING,
            show_default=False,
            help="Write the charts as pictures; needs matplotlib.",
        ),
    ] = None,
    overwrite: dataio.OverwriteOption = False,
    form: dataio.FormatOption = "auto",
    tolerant: dataio.TolerantOption = False,
    strict: dataio.StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Describe stored rollouts: rewards, groups without spread, pass@k, lengths, failures, episodes.

    Everything is kept apart by environment. One pass; memory does not grow with the input. Plugins may add tables
    and charts for their environments.
    """
    from atropos_cli.analysis.analysis import Analysis
    from atropos_cli.analysis.png import require_matplotlib
    from atropos_cli.io.lost import LostGroups
    from atropos_cli.io.readers import read_records

    session = session_of(ctx)
    options = _options(success, keep, ks, top, count_failed)
    if png is not None:
        require_matplotlib()
    for path in (html, png):
        _check_output(path, folder=path is png, overwrite=overwrite)
    reading = dataio.open_inputs(session, inputs, form=form, tolerant=tolerant, strict=strict)
    if html is not None:
        dataio.keep_inputs(reading.sources, html, str(html), "--html")
    wanted = set(env or ())
    with (
        dataio.ticking("analyze", reading) as ticker,
        Analysis(options, LostGroups(reading.sources), lambda name: session.registry.analyzers(name)) as analysis,
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
    title = inputs[0] if len(inputs) == 1 else f"{inputs[0]} and {len(inputs) - 1} more"
    files = _write(report, title, dataio.read_lines(reading.log), html, png)
    if as_json:
        session.out.json({"read": reading.log.as_json(), **report.as_json(), "files": [str(path) for path in files]})
        return
    for line in dataio.read_lines(reading.log):
        session.out.data(line)
    print_report(report, session.out)
    if html is not None:
        session.out.note(f"wrote {html}")
    if png is not None:
        session.out.note(f"wrote {len(files) - (html is not None)} pictures to {png}")
    headline, following = analysis_end(report, inputs)
    end(session.out, headline, following, data=True)


def _options(success: str, keep: list[str] | None, ks: str | None, top: int, count_failed: bool) -> AnalysisOptions:
    from atropos_cli.analysis.options import AnalysisOptions
    from atropos_cli.analysis.success import SuccessRule, parse_threshold

    options = AnalysisOptions(SuccessRule.parse(success), ks=_ks(ks), top=top, count_failed=count_failed)
    if keep:
        from dataclasses import replace

        return replace(options, thresholds=tuple(dict.fromkeys(parse_threshold(text, "--keep") for text in keep)))
    return options


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
    from atropos_cli.analysis.charts import charts_of
    from atropos_cli.analysis.page import page
    from atropos_cli.analysis.png import png as picture
    from atropos_cli.console.names import safe_name
    from atropos_cli.io.append import atomic_write
    from atropos_cli.io.remote import make_folder

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
