"""Charts as SVG text, to stand inside an HTML page. Colours come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape as escape_markup

from atropos_cli.domain.charts import Chart, Line

WIDTH, HEIGHT = 440, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 14, 44
_LABEL = 28
_ROW = 17


def nice_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers between low and high, about `wanted` of them."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """Short: 12k, 0.25, 1.5M."""
    if value != value or math.isinf(value):
        return str(value)
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1000 if letter == 'k' else size):.3g}{letter}"
    return f"{value:.4g}"


def escape(text: str) -> str:
    """For markup: control characters and marks that turn the direction of text are shown by their codes."""
    return escape_markup("".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text))


class _Axes:
    """Maps values to places in the picture."""

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], *, top: float = TOP, log_x: bool = False
    ) -> None:
        self._top = top
        self._log = log_x and x[0] > 0
        low, high = (math.log(x[0]), math.log(x[1])) if self._log else x
        self._x = (low, high if high > low else low + 1)
        self._y = (y[0], y[1] if y[1] > y[0] else y[0] + 1)

    def x(self, value: float) -> float:
        low, high = self._x
        value = math.log(value) if self._log else value
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self._y
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - self._top - BOTTOM)


def svg(chart: Chart) -> str:
    """The chart as an <svg> element with a title for screen readers."""
    if chart.categories:
        return _categories(chart)
    xs = [edge for low, high, _ in chart.bars for edge in (low, high)] + [x for line in chart.lines for x in line.xs]
    ys = [height for _, _, height in chart.bars] + [y for line in chart.lines for y in _reach(line)]
    if not xs:
        return ""
    bottom = min(0.0, *ys) if len(ys) > 1 else min(0.0, ys[0])
    named = len(chart.lines) > 1
    top = TOP + _ROW * len(chart.lines) if named else TOP
    axes = _Axes((min(xs), max(xs)), (bottom, max(ys) * 1.05 or 1.0), top=top, log_x=chart.log_x)
    parts = [*_grid(axes, bottom, max(ys)), *_x_ticks(chart, axes, min(xs), max(xs))]
    for low, high, height in chart.bars:
        x, y = axes.x(low), axes.y(height)
        width = max(0.5, axes.x(high) - x - 1)
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{axes.y(0) - y:.1f}">'
            f"<title>{number((low + high) / 2)}: {number(height)}</title></rect>"
        )
    for i, line in enumerate(chart.lines):
        parts += _line(line, axes, i)
        if named:
            y = TOP + _ROW * i
            parts.append(f'<text class="name name{i % 4}" x="{LEFT}" y="{y}">{escape(line.label)}</text>')
    parts += _axis_labels(chart)
    return _wrapped(chart, parts, HEIGHT)


def _reach(line: Line) -> list[float]:
    if line.errors is None:
        return list(line.ys)
    return [y + sign * error for y, error in zip(line.ys, line.errors, strict=True) for sign in (-1, 1)]


def _wrapped(chart: Chart, parts: Sequence[str], height: float) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(chart.title)}">'
        + "".join(parts)
        + "</svg>"
    )


def _grid(axes: _Axes, low: float, high: float) -> list[str]:
    parts = []
    for tick in nice_ticks(low, high):
        y = axes.y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(tick)}</text>')
    return parts


def _x_ticks(chart: Chart, axes: _Axes, low: float, high: float) -> list[str]:
    if chart.log_x:
        ticks = list(chart.lines[0].xs)
    elif len(chart.bars) <= 6 and chart.bars:
        ticks = [(a + b) / 2 for a, b, _ in chart.bars]
    else:
        ticks = nice_ticks(low, high, 6)
    y = HEIGHT - BOTTOM + 16
    return [f'<text class="tick" x="{axes.x(t):.1f}" y="{y}" text-anchor="middle">{number(t)}</text>' for t in ticks]


def _axis_labels(chart: Chart) -> list[str]:
    middle = (LEFT + WIDTH - RIGHT) / 2
    across = (TOP + HEIGHT - BOTTOM) / 2
    place = f'transform="translate(12 {across:.0f}) rotate(-90)"'
    return [
        f'<text class="label" x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(chart.x_label)}</text>',
        f'<text class="label" {place} text-anchor="middle">{escape(chart.y_label)}</text>',
    ]


def _line(line: Line, axes: _Axes, index: int) -> list[str]:
    points = [(axes.x(x), axes.y(y)) for x, y in zip(line.xs, line.ys, strict=True)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = [f'<polyline class="line line{index % 4}" points="{path}"/>']
    for i, (x, y) in enumerate(points):
        if line.errors is not None and line.errors[i] > 0:
            top, bottom = axes.y(line.ys[i] + line.errors[i]), axes.y(line.ys[i] - line.errors[i])
            parts.append(
                f'<line class="line line{index % 4}" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
            )
        parts.append(
            f'<circle class="dot dot{index % 4}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
            f"<title>{number(line.xs[i])}: {number(line.ys[i])}</title></circle>"
        )
    return parts


def _categories(chart: Chart) -> str:
    """Bars that lie, one for each name, the number behind it."""
    row, top = 24, 6
    most = max(value for _, value in chart.categories) or 1.0
    label = 190
    room = WIDTH - label - 60
    parts = []
    for i, (name, value) in enumerate(chart.categories):
        y = top + i * row
        shown = name if len(name) <= _LABEL else name[: _LABEL - 1] + "…"
        width = max(1.0, value / most * room)
        text = f"{escape(shown)}<title>{escape(name)}</title>"
        parts += [
            f'<text class="tick" x="{label - 8}" y="{y + 15}" text-anchor="end">{text}</text>',
            f'<rect class="bar" x="{label}" y="{y + 3}" width="{width:.1f}" height="{row - 8}"/>',
            f'<text class="tick" x="{label + width + 6:.1f}" y="{y + 15}">{number(value)}</text>',
        ]
    return _wrapped(chart, parts, top * 2 + row * len(chart.categories))
