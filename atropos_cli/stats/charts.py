"""Charts as plain numbers, which the SVG and PNG writers render alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_BARS = 24
_SINGLE = 12


@dataclass(frozen=True, slots=True)
class Line:
    """Points joined by a line. errors: half the length of the error bars, where known."""

    label: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    errors: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. bars: (from, to, height) on a number axis. categories: (name, height). lines: on a number axis."""

    name: str
    title: str
    x_label: str
    y_label: str
    bars: tuple[tuple[float, float, float], ...] = ()
    categories: tuple[tuple[str, float], ...] = ()
    lines: tuple[Line, ...] = ()
    note: str = ""
    log_x: bool = False


def histogram(values: Sequence[float]) -> tuple[tuple[float, float, float], ...]:
    """Counts of values: a bar for each value when there are few of them, else 24 bins of equal width."""
    if not values or not math.isfinite(4 * (max(values) - min(values))):
        return ()
    counts = Counter(values)
    if len(counts) <= _SINGLE:
        ordered = sorted(counts)
        gap = min((b - a for a, b in pairwise(ordered)), default=1.0)
        half = 0.4 * gap
        return tuple((value - half, value + half, float(counts[value])) for value in ordered)
    low, high = min(values), max(values)
    width = (high - low) / _BARS
    if width <= 0:
        return ()
    heights = [0] * _BARS
    for value in values:
        heights[min(_BARS - 1, int((value - low) / width))] += 1
    return tuple((low + i * width, low + (i + 1) * width, float(height)) for i, height in enumerate(heights))
