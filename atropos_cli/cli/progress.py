"""How a run looks while it goes on: a progress bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from atropos_cli.cli.output import is_rich_terminal, no_color, printable

if TYPE_CHECKING:
    from atropos_cli.domain.plan import Plan
    from atropos_cli.domain.run import RunSummary
    from atropos_cli.engine.report import Snapshot

PLAIN_EVERY = 10.0
WINDOW = 60.0
"""Seconds over which speeds are averaged."""


class Speed:
    """Groups and tokens per second over the last WINDOW seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int, int]] = deque()

    def add(self, snapshot: Snapshot) -> None:
        self._points.append((snapshot.seconds, snapshot.groups_done, snapshot.completion_tokens))
        while len(self._points) > 2 and self._points[-1][0] - self._points[0][0] > WINDOW:
            self._points.popleft()

    def rates(self) -> tuple[float, float]:
        """(groups/s, tokens/s); zeros until something is known."""
        if len(self._points) < 2:
            return 0.0, 0.0
        (start, groups, tokens), (end, groups_now, tokens_now) = self._points[0], self._points[-1]
        seconds = end - start
        return ((groups_now - groups) / seconds, (tokens_now - tokens) / seconds) if seconds > 0 else (0.0, 0.0)


def eta_text(snapshot: Snapshot, groups_per_s: float) -> str:
    """The time to the end, or "?" while it cannot be told."""
    if snapshot.groups_total is None or groups_per_s <= 0:
        return "?"
    return duration(max(0, snapshot.groups_total - snapshot.groups_done) / groups_per_s)


def duration(seconds: float) -> str:
    """1h02m, 3m05s or 12s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def progress_line(snapshot: Snapshot, speed: Speed) -> str:
    """The state of a run in one line of plain text."""
    groups_per_s, tokens_per_s = speed.rates()
    total = "?" if snapshot.groups_total is None else str(snapshot.groups_total)
    parts = [f"{snapshot.groups_done}/{total} groups"]
    if snapshot.groups_failed:
        parts.append(f"{snapshot.groups_failed} failed")
    if snapshot.rollouts_failed:
        parts.append(f"{snapshot.rollouts_failed} of {snapshot.rollouts} rollouts failed")
    parts += [f"{groups_per_s:.2f} groups/s", f"{tokens_per_s:.0f} tokens/s", f"ETA {eta_text(snapshot, groups_per_s)}"]
    if snapshot.paused:
        parts.append(f"paused: {snapshot.paused}")
    return ", ".join(parts)


def start_line(plan: Plan, total: int | None, done: int, target: str) -> str:
    """What a run is about to do."""
    tasks = "tasks until there are no more" if total is None else f"{total} tasks"
    before = f" ({done} done before)" if done else ""
    model = plan.model or "the server's model"
    return (
        f"{plan.environment.name} with {model}: {tasks}{before}, {plan.group_size} rollouts each, "
        f"{plan.execution.workers} workers -> {target}"
    )


def summary_lines(summary: RunSummary) -> list[str]:
    """What came out of a run."""
    total = "" if summary.groups_total is None else f" of {summary.groups_total}"
    first = f"{summary.state}: {summary.groups_done}{total} groups"
    if summary.groups_resumed:
        first += f" ({summary.groups_resumed} from before)"
    if summary.groups_failed:
        first += f", {summary.groups_failed} failed"
    lines = [f"{first}, {summary.rollouts} rollouts in {duration(summary.seconds)}"]
    if summary.rollouts_failed:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(summary.failures.items()))
        lines.append(f"failed rollouts: {summary.rollouts_failed}" + (f" ({reasons})" if reasons else ""))
    if summary.reward_mean is not None:
        spread = f" (std {summary.reward_std:.3f})" if summary.reward_std is not None else ""
        lines.append(f"reward: {summary.reward_mean:.3f}{spread}, {summary.zero_std_groups} groups of equal rewards")
    if summary.completion_tokens:
        # Of a resumed run the time of a killed session may be missing.
        timed = summary.seconds > 0 and not summary.groups_resumed
        speed = f", {summary.completion_tokens / summary.seconds:.0f}/s" if timed else ""
        lines.append(f"tokens: {summary.prompt_tokens} prompt, {summary.completion_tokens} completion{speed}")
    return [*lines, *cost_lines(summary)]


def cost_lines(summary: RunSummary) -> list[str]:
    """What it came to: tokens of kinds that have a price of their own, money, replies that were there already."""
    from atropos_cli.engine.costs import money, total

    lines = []
    named = {"cached": "cached_tokens", "reasoning": "reasoning_tokens"}
    kinds = {kind: total(summary.usage, name) for kind, name in named.items()}
    if any(kinds.values()):
        lines.append("of those billed: " + ", ".join(f"{count:.0f} {kind}" for kind, count in kinds.items() if count))
    if summary.cost is not None:
        limit = "" if summary.max_cost is None else f" of {money(summary.max_cost)}"
        models = {m: c.get("cost", 0) + c.get("unsure", 0) for m, c in summary.usage.items()}
        parts = [f"{model} {money(cost)}" for model, cost in models.items() if cost] if len(models) > 1 else []
        if summary.cost_unsure:
            parts.append(f"up to {money(summary.cost_unsure)} of it for requests without a whole answer")
        detail = f" ({', '.join(parts)})" if parts else ""
        lines.append(f"cost: {money(summary.cost)}{limit} {summary.currency}{detail}")
    if hits := total(summary.usage, "cache_hits"):
        lines.append(f"cache: {hits:.0f} replies were there already and cost nothing")
    return lines


class PlainReporter:
    """Lines on a stream that is no terminal: no escape codes, no carriage returns."""

    def __init__(self, target: str, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._target = target
        self._stream = stream
        self._clock = clock
        self._speed = Speed()
        self._next = clock() + PLAIN_EVERY
        self._said: set[tuple[str, str]] = set()
        self._summary: RunSummary | None = None

    def started(self, plan: Plan, total: int | None, done: int) -> None:
        self._next = self._clock() + PLAIN_EVERY
        self._line(start_line(plan, total, done, self._target))

    def progress(self, snapshot: Snapshot) -> None:
        self._speed.add(snapshot)
        if self._clock() >= self._next:
            self._next = self._clock() + PLAIN_EVERY
            self._line(progress_line(snapshot, self._speed))

    def event(self, kind: str, message: str) -> None:
        if (kind, message) not in self._said:
            self._said.add((kind, message))
            self._line(message)

    def finished(self, summary: RunSummary) -> None:
        self._summary = summary

    def close(self) -> None:
        """Leave the terminal as it was. Safe to call twice."""

    def conclude(self) -> None:
        """Say what came out, if the run got that far. Kept apart from `finished`: a broken pipe ends in silence."""
        self.close()
        for line in summary_lines(self._summary) if self._summary is not None else ():
            self._line(line)

    def _line(self, text: str) -> None:
        try:
            print(printable(text, lines=False), file=self._stream or sys.stderr, flush=True)
        except (OSError, ValueError):
            return  # a closed stderr must not end the run


class BarReporter(PlainReporter):
    """A progress bar, with events printed above it."""

    def __init__(self, target: str, stream: TextIO | None = None) -> None:
        super().__init__(target, stream)
        from rich.console import Console

        self._console = Console(
            file=stream or sys.stderr, no_color=no_color(), highlight=False, markup=False, emoji=False
        )
        self._bar: Any = None
        self._row: Any = None

    def started(self, plan: Plan, total: int | None, done: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        super().started(plan, total, done)
        self._bar = Progress(
            BarColumn(bar_width=30),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            transient=True,
        )
        self._row = self._bar.add_task(
            f"{done}/{total if total is not None else '?'} groups", total=total, completed=done
        )
        self._bar.start()

    def progress(self, snapshot: Snapshot) -> None:
        self._speed.add(snapshot)
        if self._bar is not None:
            text = progress_line(snapshot, self._speed)
            self._bar.update(
                self._row, completed=snapshot.groups_done, total=snapshot.groups_total, description=printable(text)
            )

    def finished(self, summary: RunSummary) -> None:
        self.close()
        super().finished(summary)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _line(self, text: str) -> None:
        # While the bar is up, lines go through its console, which prints them above it.
        if self._bar is None:
            super()._line(text)
        else:
            self._console.print(printable(text, lines=False), soft_wrap=True)


def make_reporter(target: str) -> PlainReporter:
    """The reporter that suits stderr. `target` is where the groups go, as the user named it."""
    return BarReporter(target) if is_rich_terminal(sys.stderr) else PlainReporter(target)
