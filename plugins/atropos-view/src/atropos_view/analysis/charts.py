"""What is drawn of an environment."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk.analysis import SAMPLE, Chart, Line, Moments, Series, histogram
from atropos_view.analysis.summaries import succeeded_and_failed

if TYPE_CHECKING:
    from atropos_view.analysis.report import EnvironmentReport

_NAMED_REWARDS = 6
_CATEGORIES = 12


def charts_of(report: EnvironmentReport) -> Iterator[Chart]:
    """The charts of an environment that show more than one value."""
    yield from filter(tells, _charts(report))
    yield from filter(tells, report.charts)


def tells(chart: Chart) -> bool:
    """Is there something to compare?"""
    if chart.categories:
        return len(chart.categories) > 1 and any(value for _, value in chart.categories)
    if chart.bars:
        return sum(height > 0 for _, _, height in chart.bars) > 1
    return any(len(set(line.ys)) > 1 for line in chart.lines)


def _charts(report: EnvironmentReport) -> Iterator[Chart]:
    env = report.environment
    yield from _distribution("reward", "Reward", "reward", env.reward)
    yield from _distribution("task-means", "Mean reward of each task", "mean reward", report.task_means, "tasks")
    data = report.as_json()
    yield from _pass_at_k(data)
    if len(env.rewards) > 1:
        for i, (name, series) in enumerate(list(env.rewards.items())[:_NAMED_REWARDS]):
            if series.sample == env.reward.sample:
                continue
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
    if not succeeded_and_failed(data):
        return
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
