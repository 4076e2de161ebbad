"""Learning curves of a training run: curves.html, which loads nothing, and curves.png where matplotlib is."""

from __future__ import annotations

import base64
import hashlib
import warnings
from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

from atropos_cli.domain.charts import Chart, Line
from atropos_cli.engine.analysis.svg import escape, number, svg
from atropos_cli.engine.training.records.metrics import Values, read_metrics, series
from atropos_cli.errors import DataError
from atropos_cli.io.append import atomic_write

HTML, PNG = "curves.html", "curves.png"

_POINTS = 150
_LINES = 4
"""Lines that the style sheet has colours for."""
_COLORS = ("#3b6ea8", "#c26a2d", "#4d8a57", "#8a4d86")

_FIRST = ("reward", "loss", "grad_norm", "kl", "entropy", "learning_rate", "frac_reward_zero_std")
"""Metrics that are drawn before all others, in this order."""
_LEFT_OUT = ("epoch", "num_tokens")


def draw_curves(folder: Path, title: str | None = None) -> list[Path]:
    """Draw a run folder's metrics.jsonl; returns the files written. Raises DataError when it holds nothing."""
    rows = read_metrics(folder)
    if not rows:
        raise DataError(f"{folder} holds no metrics", hint="give the folder of a training run that made a step")
    charts = charts_of(rows)
    heading = title or folder.resolve().name
    written = [folder / HTML]
    atomic_write(folder / HTML, page(charts, heading, rows).encode("utf-8", "replace"))
    if find_spec("matplotlib") is not None:
        atomic_write(folder / PNG, png(charts, heading))
        written.append(folder / PNG)
    return written


def charts_of(rows: Sequence[tuple[int, Values]]) -> list[Chart]:
    """Evaluations first, one chart for each of their metrics with a line for each suite; then the training metrics."""
    names = list(dict.fromkeys(name for _, values in rows for name in values))
    charts = _evaluations(rows, [name for name in names if name.startswith("eval/")])
    training = [name for name in names if not name.startswith("eval/") and name not in _LEFT_OUT]
    training.sort(key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    for name in training:
        line = _line(list(rows), name, name)
        if line is not None:
            charts.append(Chart(name, name, "optimiser step", name, lines=(line,), note=_note(list(rows), name)))
    return charts


def _evaluations(rows: Sequence[tuple[int, Values]], names: Sequence[str]) -> list[Chart]:
    by_metric: dict[str, list[Line]] = {}
    for name in names:
        suite, _, metric = name.removeprefix("eval/").rpartition("/")
        if metric.endswith(("_low", "_high")):
            continue
        line = _line(list(rows), name, suite)
        if line is not None:
            by_metric.setdefault(metric, []).append(line)
    ordered = sorted(by_metric, key=lambda metric: (metric != "accuracy", metric != "reward", metric))
    return [
        Chart(f"eval-{metric}", f"Evaluation: {metric}", "optimiser step", metric, lines=tuple(lines[start:][:_LINES]))
        for metric in ordered
        for lines in [by_metric[metric]]
        for start in range(0, len(lines), _LINES)
    ]


def _line(rows: list[tuple[int, Values]], name: str, label: str) -> Line | None:
    """The metric's points; long runs are drawn as means of neighbouring steps. Evaluations carry their interval."""
    points = series(rows, name)
    if not points:
        return None
    if len(points) > _POINTS:
        points = [
            (round(fmean(step for step, _ in part)), fmean(value for _, value in part))
            for i in range(_POINTS)
            if (part := points[i * len(points) // _POINTS : (i + 1) * len(points) // _POINTS])
        ]
        return Line(label, tuple(float(step) for step, _ in points), tuple(value for _, value in points))
    low, high = dict(series(rows, f"{name}_low")), dict(series(rows, f"{name}_high"))
    errors = tuple((high[step] - low[step]) / 2 if step in low and step in high else 0.0 for step, _ in points)
    xs, ys = tuple(float(step) for step, _ in points), tuple(value for _, value in points)
    return Line(label, xs, ys, errors if any(errors) else None)


def _note(rows: list[tuple[int, Values]], name: str) -> str:
    missing = sum(1 for _, values in rows if name in values and values[name] is None)
    return f"{missing} steps without a finite value" if missing else ""


def page(charts: Sequence[Chart], title: str, rows: Sequence[tuple[int, Values]]) -> str:
    """The whole page: no scripts, nothing loaded from anywhere, every text escaped."""
    style = files("atropos_cli.engine.analysis").joinpath("page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    figures = "".join(
        f"<figure><figcaption>{escape(chart.title)}"
        + (f" <small>{escape(chart.note)}</small>" if chart.note else "")
        + f"</figcaption>{svg(chart)}</figure>"
        for chart in charts
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1><p>{rows[-1][0]} optimiser steps</p></header>\n"
        f'<section><div class="charts">{figures}</div>{_table(rows)}</section>\n</body>\n</html>\n'
    )


def _table(rows: Sequence[tuple[int, Values]]) -> str:
    """First, best and last value of each evaluation metric."""
    names = list(dict.fromkeys(name for _, values in rows for name in values if name.startswith("eval/")))
    if not names:
        return ""
    lines = []
    for name in names:
        points = series(list(rows), name)
        if points:
            best = max(points, key=lambda point: point[1])
            cells = [name, number(points[0][1]), f"{number(best[1])} (step {best[0]})", number(points[-1][1])]
            lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "<tr><th>metric</th><th>first</th><th>highest</th><th>last</th></tr>"
    return f"<h2>Evaluations</h2><table>{head}{''.join(lines)}</table>"


def png(charts: Sequence[Chart], title: str) -> bytes:
    """All charts in one picture, three in a row."""
    import io

    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(3, max(1, len(charts)))
    lines = -(-len(charts) // columns)
    with matplotlib.rc_context({"text.parse_math": False, "font.size": 8}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # letters that the font lacks are drawn as boxes
        figure = Figure(figsize=(4.2 * columns, 0.4 + 2.6 * lines), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        for place, chart in enumerate(charts, start=1):
            axes = figure.add_subplot(lines, columns, place)
            for line, color in zip(chart.lines, _COLORS, strict=False):
                axes.errorbar(line.xs, line.ys, yerr=line.errors, label=_plain(line.label), color=color, linewidth=1.2)
            axes.set_title(_plain(chart.title), fontsize=9)
            axes.set_xlabel(chart.x_label)
            axes.spines[["top", "right"]].set_visible(False)
            if len(chart.lines) > 1:
                axes.legend(frameon=False)
        figure.suptitle(_plain(title), fontsize=10)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _plain(text: str) -> str:
    """Without control characters, which fonts cannot draw."""
    return "".join(char if char.isprintable() else "?" for char in text)
