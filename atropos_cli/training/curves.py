"""Learning curves of a training run: curves.html, which loads nothing, and curves.svg with the charts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from atropos_cli.errors import DataError
from atropos_cli.io.append import atomic_write
from atropos_cli.stats.charts import Chart, Line
from atropos_cli.stats.page import page as whole_page
from atropos_cli.stats.svg import COLORS, document, escape, figure, number
from atropos_cli.training.metrics import Values, read_metrics, series

HTML, SVG = "curves.html", "curves.svg"

_POINTS = 150
_STEP = "optimiser step"
_SUITES = 4
"""Suites that the head of the page names."""

_FIRST = ("reward", "loss", "grad_norm", "kl", "entropy", "learning_rate", "frac_reward_zero_std")
"""Metrics that are drawn before all others, in this order."""
_LEFT_OUT = ("epoch", "num_tokens")


def draw_curves(folder: Path, title: str | None = None) -> list[Path]:
    """Draw a run folder's metrics.jsonl; returns the files written. Raises DataError when it holds nothing."""
    rows = read_metrics(folder)
    if not rows:
        raise DataError(f"{folder} holds no metrics", hint="give the folder of a training run that made a step")
    charts, remarks = drawn(rows)
    heading = title or folder.resolve().name
    written = [folder / HTML]
    atomic_write(folder / HTML, page(charts, heading, rows, remarks).encode("utf-8", "replace"))
    if charts:
        atomic_write(folder / SVG, document(charts, heading).encode("utf-8", "replace"))
        written.append(folder / SVG)
    return written


def charts_of(rows: Sequence[tuple[int, Values]]) -> list[Chart]:
    """The metrics worth a picture."""
    return drawn(rows)[0]


def drawn(rows: Sequence[tuple[int, Values]]) -> tuple[list[Chart], dict[str, list[str]]]:
    """(charts, remarks on metrics without one: those that never change, have one value, none, or those of another).

    Evaluations first, one chart for each of their metrics with a line for each suite; then the training metrics.
    """
    names = list(dict.fromkeys(name for _, values in rows for name in values if name not in _LEFT_OUT))
    remarks: dict[str, list[str]] = {"constant": [], "one value": [], "no finite value": [], "the same": []}
    telling = [name for name in names if not name.endswith(("_low", "_high")) and _tells(rows, name, remarks)]
    charts = _evaluations(rows, [name for name in telling if name.startswith("eval/")])
    training = [name for name in telling if not name.startswith("eval/")]
    training.sort(key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    seen: dict[tuple[object, ...], str] = {}
    for name in training:
        line = _line(list(rows), name, name)
        twin = seen.setdefault((line.xs, tuple(map(str, line.ys))), name)
        if twin == name:
            charts.append(Chart(name, name, _STEP, "", lines=(line,), note=_note(rows, name)))
        else:
            remarks["the same"].append(f"{name} = {twin}")
    return charts, {kind: told for kind, told in remarks.items() if told}


def _tells(rows: Sequence[tuple[int, Values]], name: str, remarks: dict[str, list[str]]) -> bool:
    """Does the metric change? If not, a remark takes its place."""
    points = series(list(rows), name)
    shown = name.removeprefix("eval/")
    if not points:
        remarks["no finite value"].append(shown)
    elif len(points) == 1:
        if not name.startswith("eval/"):  # those are in the table of evaluations
            remarks["one value"].append(f"{shown} {number(points[0][1])} (step {points[0][0]})")
    elif len({value for _, value in points}) == 1 and not _note(rows, name):
        remarks["constant"].append(f"{shown} {number(points[0][1])}")
    else:
        return True
    return False


def _evaluations(rows: Sequence[tuple[int, Values]], names: Sequence[str]) -> list[Chart]:
    by_metric: dict[str, list[Line]] = {}
    for name in names:
        suite, _, metric = name.removeprefix("eval/").rpartition("/")
        by_metric.setdefault(metric, []).append(_line(list(rows), name, suite or metric))
    ordered = sorted(by_metric, key=lambda metric: (metric != "accuracy", metric != "reward", metric))
    return [
        Chart(f"eval-{metric}", _title(metric, lines), _STEP, "", lines=tuple(lines[start:][:COLORS]))
        for metric in ordered
        for lines in [by_metric[metric]]
        for start in range(0, len(lines), COLORS)
    ]


def _title(metric: str, lines: Sequence[Line]) -> str:
    return f"Evaluation: {metric}" + (f" on {lines[0].label}" if len(lines) == 1 and lines[0].label != metric else "")


def _line(rows: list[tuple[int, Values]], name: str, label: str) -> Line:
    """The metric's points, with gaps where it was not finite; long runs are drawn as means of neighbouring steps.

    Evaluations carry their interval.
    """
    points = [(step, math.nan if (v := values[name]) is None else v) for step, values in rows if name in values]
    if len(points) > _POINTS:
        points = [
            (round(fmean(step for step, _ in part)), fmean(finite) if finite else math.nan)
            for i in range(_POINTS)
            if (part := points[i * len(points) // _POINTS : (i + 1) * len(points) // _POINTS])
            for finite in [[value for _, value in part if not math.isnan(value)]]
        ]
        return Line(label, tuple(float(step) for step, _ in points), tuple(value for _, value in points))
    low, high = dict(series(rows, f"{name}_low")), dict(series(rows, f"{name}_high"))
    errors = tuple((high[step] - low[step]) / 2 if step in low and step in high else 0.0 for step, _ in points)
    xs, ys = tuple(float(step) for step, _ in points), tuple(value for _, value in points)
    return Line(label, xs, ys, errors if any(errors) else None)


def _note(rows: Sequence[tuple[int, Values]], name: str) -> str:
    missing = sum(1 for _, values in rows if name in values and values[name] is None)
    return f"{missing} step{'s' if missing > 1 else ''} without a finite value" if missing else ""


def page(
    charts: Sequence[Chart],
    title: str,
    rows: Sequence[tuple[int, Values]],
    remarks: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The whole page: no scripts, nothing loaded from anywhere, every text escaped."""
    told = "".join(
        f"<li><b>{escape(kind)}:</b> {escape(', '.join(texts))}</li>" for kind, texts in (remarks or {}).items()
    )
    remarked = f'<ul class="remarks">{told}</ul>' if told else ""
    steps = [step for step, values in rows if any(not name.startswith("eval/") for name in values)]
    count = f"{steps[-1] if steps else 0} optimiser step{'' if steps and steps[-1] == 1 else 's'}"
    drawings = "".join(map(figure, charts))
    return whole_page(
        title,
        f"<h1>{escape(title)}</h1><p>{count}</p>",
        f'<section>{_cards(rows)}<div class="charts">{drawings}</div>{remarked}{_table(rows)}</section>',
    )


def _cards(rows: Sequence[tuple[int, Values]]) -> str:
    """What the run came to: accuracy of each suite and the reward, from the first to the last."""
    names = list(dict.fromkeys(name for _, values in rows for name in values))
    suites = [name for name in names if name.startswith("eval/") and name.endswith("/accuracy")]
    cards = []
    for name in [*suites[:_SUITES], *(["reward"] if "reward" in names else [])]:
        points = series(list(rows), name)
        if not points:
            continue
        (first_step, first), (last_step, last) = points[0], points[-1]
        best_step, best = max(points, key=lambda point: point[1])
        value = _brief(last)
        if first_step != last_step:
            value = f"{_brief(first)} → {value}"
        steps = f"step {first_step}" if first_step == last_step else f"steps {first_step} to {last_step}"
        detail = steps if best_step == last_step else f"{steps}; highest {_brief(best)} at step {best_step}"
        title = "training reward" if name == "reward" else f"accuracy: {name.removeprefix('eval/').rpartition('/')[0]}"
        cards.append(f"<div><h3>{escape(title)}</h3><strong>{value}</strong><span>{detail}</span></div>")
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _brief(value: float) -> str:
    """Three places behind the point, and of a smaller number its first three digits."""
    return number(round(value, 3) or float(f"{value:.3g}"))


def _table(rows: Sequence[tuple[int, Values]]) -> str:
    """First, highest and last value of each evaluation metric, with its interval where it has one."""
    names = list(dict.fromkeys(name for _, values in rows for name in values if name.startswith("eval/")))
    lines = []
    for name in names:
        points = series(list(rows), name)
        if not points or name.endswith(("_low", "_high")):
            continue
        low, high = dict(series(list(rows), f"{name}_low")), dict(series(list(rows), f"{name}_high"))

        def cell(step: int, value: float, low: dict[int, float] = low, high: dict[int, float] = high) -> str:
            known = step in low and step in high
            return number(value) + (f" [{number(low[step])}, {number(high[step])}]" if known else "")

        best = max(points, key=lambda point: point[1])
        cells = [cell(*points[0]), f"{number(best[1])} (step {best[0]})", cell(*points[-1])]
        head = f"<th>{escape(name.removeprefix('eval/'))}</th>"
        lines.append(f"<tr>{head}" + "".join(f"<td>{escape(text)}</td>" for text in cells) + "</tr>")
    if not lines:
        return ""
    head = "<tr><th>metric</th><th>first</th><th>highest</th><th>last</th></tr>"
    return f"<h2>Evaluations</h2><table>{head}{''.join(lines)}</table>"
