"""Charts as SVG: inside an HTML page, with the colours of its style sheet, or as a file of their own."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape as escape_markup
from importlib.resources import files

from atropos_cli.stats.charts import Chart, Line

WIDTH, HEIGHT = 440, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 14, 44
COLORS = 8
"""Lines that the style sheet tells apart, by colour and dashes."""

_LABEL = 28
_LETTERED = 1e12
"""From here on a power of ten is shorter than a number of billions."""

_TICK = 8
"""Letters of a label that fit beside the axis; longer ones are set narrower, since a minus cut off turns the sign."""

_GAP, _HEAD, _ROW, _LETTERS = 20, 22, 16, 50
"""Of a file: between charts, above a chart, of one name below it, letters of a title."""

_DRAWN = (".bar", ".grid", ".tick", ".label", ".line", ".dot")
"""Classes of what a chart is made of."""

_TICK_GAP = 30
"""Least distance of two labels on the axis below."""


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
        if size <= abs(value) < _LETTERED:
            return f"{value / (1000 if letter == 'k' else size):.3g}{letter}"
    return f"{value or 0:.4g}"  # never -0


def escape(text: str) -> str:
    """For markup: control characters and marks that turn the direction of text are shown by their codes."""
    return escape_markup("".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text))


def figure(chart: Chart) -> str:
    """The chart under its title. Names of lines stand in a list below it, where they have room at any length."""
    picture = svg(chart)
    if not picture:
        return ""
    note = f" <small>{escape(chart.note)}</small>" if chart.note else ""
    names = "".join(
        f'<li><i class="swatch swatch{i % COLORS}"></i><bdi>{escape(line.label)}</bdi> <b>{_last(line)}</b></li>'
        for i, line in enumerate(chart.lines)
    )
    legend = f'<ul class="legend">{names}</ul>' if len(chart.lines) > 1 else ""
    return f"<figure><figcaption>{escape(chart.title)}{note}</figcaption>{picture}{legend}</figure>"


def _last(line: Line) -> str:
    finite = [y for y in line.ys if math.isfinite(y)]
    return number(finite[-1]) if finite else ""


class _Axes:
    """Maps values to places in the picture."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], *, log_x: bool = False) -> None:
        self._log = log_x and x[0] > 0
        low, high = (math.log(x[0]), math.log(x[1])) if self._log else x
        self._x = (low, high) if high > low else (low - 1, low + 1)
        self._y = (y[0], y[1] if y[1] > y[0] else y[0] + 1)

    def x(self, value: float) -> float:
        low, high = self._x
        value = math.log(value) if self._log else value
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self._y
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def svg(chart: Chart) -> str:
    """The chart as an <svg> element with a title for screen readers; points that are not finite are gaps in a line."""
    parts, height = _content(chart)
    if not parts:
        return ""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(chart.title)}">'
        + "".join(parts)
        + "</svg>"
    )


def style_sheet() -> str:
    """Of all pages with charts."""
    return files("atropos_cli.stats").joinpath("page.css").read_text("utf-8")


def document(charts: Sequence[Chart], heading: str) -> str:
    """An SVG file of the charts, up to three in a row, each with its title and the names of its lines."""
    panels = [(parts, height) for parts, height in map(_panel, charts) if parts]
    columns = max(1, min(3, len(panels)))
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    parts: list[str] = []
    top = _HEAD + _GAP
    for row in rows:
        for column, (drawing, _) in enumerate(row):
            parts.append(f'<g transform="translate({_GAP + column * (WIDTH + _GAP)} {top})">{"".join(drawing)}</g>')
        top += int(max(height for _, height in row)) + _GAP
    width = columns * (WIDTH + _GAP) + _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" width="{width}" height="{top}" '
        f'font-family="sans-serif"><style>{_style()}</style><rect width="100%" height="100%" fill="#fff"/>'
        f'<text class="tick" x="{_GAP}" y="{_HEAD}">{escape(heading)}</text>{"".join(parts)}</svg>\n'
    )


def _style() -> str:
    """The style sheet's rules for charts, its light colours written out: few programs but browsers know variables."""
    sheet = style_sheet()
    colors = dict(re.findall(r"--(\w+): (#\w+)", sheet.partition("\n")[0]))
    rules = [line for line in sheet.splitlines() if line.startswith(_DRAWN)]
    return re.sub(r"var\(--(\w+)\)", lambda name: colors[name[1]], "".join(rules))


def _panel(chart: Chart) -> tuple[list[str], float]:
    """A chart with title and legend as elements, and its height; none for a chart with nothing to draw."""
    parts, height = _content(chart)
    if not parts:
        return [], 0.0
    title = chart.title + (f" ({chart.note})" if chart.note else "")
    head = f'<text x="0" y="14" font-size="14" font-weight="600">{_cut(title, _LETTERS)}</text>'
    names = []
    for i, line in enumerate(chart.lines if len(chart.lines) > 1 else ()):
        y = _HEAD + height + i * _ROW + 10
        names += [
            f'<line class="line line{i % COLORS}" x1="{LEFT}" x2="{LEFT + 20}" y1="{y - 4:.0f}" y2="{y - 4:.0f}"/>',
            f'<text class="tick" x="{LEFT + 28}" y="{y:.0f}">{_cut(line.label, _LETTERS - 10)} {_last(line)}</text>',
        ]
    whole = [head, f'<g transform="translate(0 {_HEAD})">', *parts, "</g>", *names]
    return whole, _HEAD + height + _ROW * (len(names) // 2)


def _cut(text: str, letters: int) -> str:
    """For markup: what fits, with the whole text as a tooltip."""
    if len(text) <= letters:
        return escape(text)
    return f"{escape(text[: letters - 1])}…<title>{escape(text)}</title>"


def _content(chart: Chart) -> tuple[list[str], float]:
    """The elements of a chart, and its height; none for one with nothing to draw."""
    if chart.categories:
        return _categories(chart)
    xs = [edge for low, high, _ in chart.bars for edge in (low, high)] + [x for line in chart.lines for x in line.xs]
    ys = [height for _, _, height in chart.bars] + [y for line in chart.lines for y in _reach(line)]
    if not xs or not ys:
        return [], HEIGHT
    bottom, top = min(0.0, *ys), max(ys)
    if not math.isfinite(2 * (top - bottom)) or not math.isfinite(2 * (max(xs) - min(xs))):
        return [], HEIGHT  # beyond what can be computed with
    axes = _Axes((min(xs), max(xs)), (bottom, top + 0.05 * (top - bottom)), log_x=chart.log_x)
    parts = [*_grid(axes, bottom, top), *_x_ticks(chart, axes, min(xs), max(xs))]
    for low, high, height in chart.bars:
        x, y = axes.x(low), axes.y(height)
        width = max(0.5, axes.x(high) - x - 1)
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{axes.y(0) - y:.1f}">'
            f"<title>{number((low + high) / 2)}: {number(height)}</title></rect>"
        )
    for i, line in enumerate(chart.lines):
        parts += _line(line, axes, i % COLORS)
    parts += _axis_labels(chart)
    return parts, HEIGHT


def _reach(line: Line) -> list[float]:
    """The finite values, with their errors."""
    errors = line.errors or (0.0,) * len(line.ys)
    reach = [y + sign * error for y, error in zip(line.ys, errors, strict=True) for sign in (-1, 1)]
    return [y for y in reach if math.isfinite(y)]


def _grid(axes: _Axes, low: float, high: float) -> list[str]:
    parts = []
    for tick in nice_ticks(low, high):
        y = axes.y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        text = number(tick)
        fit = f' textLength="{LEFT - 8}" lengthAdjust="spacingAndGlyphs"' if len(text) > _TICK else ""
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end"{fit}>{text}</text>')
    return parts


def _x_ticks(chart: Chart, axes: _Axes, low: float, high: float) -> list[str]:
    if chart.log_x:
        ticks = sorted({x for line in chart.lines for x in line.xs})
    elif len(chart.bars) <= 6 and chart.bars:
        ticks = [(a + b) / 2 for a, b, _ in chart.bars]
    else:
        ticks = nice_ticks(low, high, 6)
        if all(x == int(x) for line in chart.lines for x in line.xs) and not chart.bars:
            ticks = [tick for tick in ticks if abs(tick - round(tick)) < 1e-6]  # there is no half step
    y = HEIGHT - BOTTOM + 16
    parts, before = [], -math.inf
    for tick in ticks:
        x = axes.x(tick)
        if x - before >= _TICK_GAP:
            parts.append(f'<text class="tick" x="{x:.1f}" y="{y}" text-anchor="middle">{number(tick)}</text>')
            before = x
    return parts


def _axis_labels(chart: Chart) -> list[str]:
    middle = (LEFT + WIDTH - RIGHT) / 2
    across = (TOP + HEIGHT - BOTTOM) / 2
    place = f'transform="translate(11 {across:.0f}) rotate(-90)"'
    parts = [
        f'<text class="label" x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(chart.x_label)}</text>'
    ]
    if chart.y_label:
        shown = chart.y_label if len(chart.y_label) <= _LABEL else chart.y_label[: _LABEL - 1] + "…"
        parts.append(f'<text class="label" {place} text-anchor="middle">{escape(shown)}</text>')
    return parts


def _line(line: Line, axes: _Axes, index: int) -> list[str]:
    parts: list[str] = []
    piece: list[str] = []
    dots = []
    for i, (x, y) in enumerate(zip(line.xs, line.ys, strict=True)):
        if not math.isfinite(y):
            parts += _polyline(piece, index)
            piece = []
            continue
        at_x, at_y = axes.x(x), axes.y(y)
        piece.append(f"{at_x:.1f},{at_y:.1f}")
        if line.errors is not None and math.isfinite(line.errors[i]) and line.errors[i] > 0:
            top, bottom = axes.y(y + line.errors[i]), axes.y(y - line.errors[i])
            parts.append(
                f'<line class="line line{index}" x1="{at_x:.1f}" x2="{at_x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
            )
        dots.append(
            f'<circle class="dot dot{index}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="{3 if len(line.xs) <= 60 else 2}">'
            f"<title>{number(x)}: {number(y)}</title></circle>"
        )
    return [*parts, *_polyline(piece, index), *dots]


def _polyline(points: Sequence[str], index: int) -> list[str]:
    return [f'<polyline class="line line{index}" points="{" ".join(points)}"/>'] if len(points) > 1 else []


def _categories(chart: Chart) -> tuple[list[str], float]:
    """Bars that lie, one for each name, the number behind it."""
    row, top = 24, 6
    most = max(value for _, value in chart.categories) or 1.0
    label = 190
    room = WIDTH - label - 60
    parts = []
    for i, (name, value) in enumerate(chart.categories):
        y = top + i * row
        width = max(1.0, value / most * room)
        text = _cut(name, _LABEL)
        parts += [
            f'<text class="tick fixed" x="{label - 8}" y="{y + 15}" text-anchor="end">{text}</text>',
            f'<rect class="bar" x="{label}" y="{y + 3}" width="{width:.1f}" height="{row - 8}"/>',
            f'<text class="tick fixed" x="{label + width + 6:.1f}" y="{y + 15}">{number(value)}</text>',
        ]
    return parts, top * 2 + row * len(chart.categories)
