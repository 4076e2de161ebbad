"""What is drawn of an environment: charts as plain numbers, which the SVG and PNG writers render alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from atropos_cli.engine.analysis.streaming import SAMPLE, Moments, Series

if TYPE_CHECKING:
    from atropos_cli.engine.analysis.report import EnvironmentReport

_BARS = 24
_SINGLE = 12
_NAMED_REWARDS = 6
_CATEGORIES = 12


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


def charts_of(report: EnvironmentReport) -> Iterator[Chart]:
    """The charts of an environment that have something to show."""
    env = report.environment
    yield from _distribution("reward", "Reward", "reward", env.reward)
    yield from _distribution("task-means", "Mean reward of each task", "mean reward", report.task_means, "tasks")
    data = report.as_json()
    yield from _pass_at_k(data)
    if len(env.rewards) > 1:
        for i, (name, series) in enumerate(list(env.rewards.items())[:_NAMED_REWARDS]):
            yield from _distribution(f"reward-{i}", f"Reward {name!r}", "value", series)
    yield from _distribution("tokens", "Length in tokens", "sampled tokens", env.tokens)
    yield from _distribution("characters", "Length in characters", "characters", env.characters)
    if env.turns.n and env.turns.high > 1:
        yield from _distribution("turns", "Turns of a rollout", "assistant messages", env.turns)
    if env.turn_rewards:
        yield _over_turns(env.turn_rewards)
    for name, title, counts in (
        ("stop-reasons", "Stop reasons", env.stop_reasons or env.finish_reasons),
        ("failures", "Failed rollouts by stage and type", env.failures),
    ):
        if counts:
            top = tuple((label, float(count)) for label, count in counts.most_common(_CATEGORIES))
            yield Chart(name, title, "", "rollouts", categories=top)


def _distribution(name: str, title: str, x_label: str, series: Series, what: str = "rollouts") -> Iterator[Chart]:
    bars = histogram(series.sample)
    if bars:
        note = "" if series.exact else f"a random sample of {SAMPLE} of {series.n}"
        yield Chart(name, title, x_label, what, bars=bars, note=note)


def _pass_at_k(data: dict[str, Any]) -> Iterator[Chart]:
    lines = []
    for key, label in (("pass_at_k", "pass@k: one of k succeeds"), ("pass_hat_k", "pass^k: all k succeed")):
        points = data[key]
        if len(points) > 1:
            lines.append(
                Line(
                    label,
                    tuple(float(k) for k in points),
                    tuple(point["mean"] for point in points.values()),
                    tuple(point["stderr"] or 0.0 for point in points.values()),
                )
            )
    if lines:
        rule = data["success"]["rule"]
        yield Chart("pass-at-k", "pass@k and pass^k", "k", "share of tasks", lines=tuple(lines), note=rule, log_x=True)


def _over_turns(turns: dict[int, Moments]) -> Chart:
    ordered = [(turn, moments) for turn, moments in sorted(turns.items()) if math.isfinite(moments.mean)]
    line = Line(
        "mean reward",
        tuple(float(turn) for turn, _ in ordered),
        tuple(moments.mean for _, moments in ordered),
        tuple(moments.stderr or 0.0 for _, moments in ordered),
    )
    return Chart("reward-by-turn", "Reward over the turns of an episode", "turn", "mean reward", lines=(line,))
