"""How a run looks while it goes on: a line that is drawn anew on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from atropos_cli.console.ending import counted
from atropos_cli.console.output import is_rich_terminal, printable
from atropos_cli.console.statusline import StatusLine
from atropos_cli.streams import data_stream

if TYPE_CHECKING:
    from atropos_cli.console.output import Output
    from atropos_cli.domain.plan import Plan
    from atropos_cli.domain.run import RunSummary
    from atropos_cli.rollout.report import Examined, Snapshot

PLAIN_EVERY = 10.0
_PLAIN_MOST = 60.0
_PLAIN_SHARE = 0.05  # of the time gone: a run of hours needs no line every ten seconds
WINDOW = 60.0
"""Seconds over which speeds are averaged."""
_SILENT = 20.0
"""Seconds without an answer that are worth a word."""


class Window:
    """How fast a number has grown over the last WINDOW seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def add(self, moment: float, count: int) -> None:
        self._points.append((moment, count))
        while len(self._points) > 2 and moment - self._points[0][0] > WINDOW:
            self._points.popleft()

    def per_second(self) -> float:
        """0 until something is known."""
        if not self._points:
            return 0.0
        (start, before), (end, now) = self._points[0], self._points[-1]
        return (now - before) / (end - start) if end > start else 0.0


class Speed:
    """Rollouts and tokens per second, and how long nothing has come back."""

    def __init__(self) -> None:
        self._rollouts, self._tokens = Window(), Window()
        self._now = 0.0
        self._answers = (0, 0.0)

    def add(self, snapshot: Snapshot) -> None:
        self._now = snapshot.seconds
        self._rollouts.add(self._now, snapshot.rollouts_done)
        self._tokens.add(self._now, snapshot.completion_tokens)
        moved = snapshot.requests_done + snapshot.rollouts_done
        if moved != self._answers[0] or snapshot.paused:
            self._answers = (moved, self._now)

    def rates(self) -> tuple[float, float]:
        """(rollouts/s, tokens/s); zeros until something is known."""
        return self._rollouts.per_second(), self._tokens.per_second()

    def silent(self) -> float:
        """Seconds in which no request was answered and no rollout ended."""
        return self._now - self._answers[1]


def duration(seconds: float) -> str:
    """1h02m, 3m05s or 12s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def rollouts_total(snapshot: Snapshot, group_size: int) -> int | None:
    """How many rollouts the run makes; None where that is open: no end, or several groups of a task."""
    if snapshot.groups_total is None:
        return None
    total = snapshot.groups_total * group_size
    return total if snapshot.rollouts_done <= total else None


def eta_text(snapshot: Snapshot, rollouts_per_s: float, group_size: int) -> str | None:
    """The time to the end, or None while it cannot be told."""
    total = rollouts_total(snapshot, group_size)
    if total is None or rollouts_per_s <= 0:
        return None
    return duration(max(0, total - snapshot.rollouts_done) / rollouts_per_s)


def progress_parts(snapshot: Snapshot, speed: Speed, group_size: int) -> list[tuple[int, str]]:
    """What there is to say of a run, each with its rank: where there is little room, low ranks stay."""
    rollouts_per_s, tokens_per_s = speed.rates()
    total = rollouts_total(snapshot, group_size)
    groups = f"{snapshot.groups_done}/{'?' if snapshot.groups_total is None else snapshot.groups_total} groups"
    parts = [(0, groups)]
    if snapshot.groups_failed:
        parts.append((2, f"{snapshot.groups_failed} failed"))
    parts.append((5, f"{snapshot.rollouts_done}{'' if total is None else f'/{total}'} rollouts"))
    if snapshot.rollouts_failed:
        parts.append((6, f"{snapshot.rollouts_failed} of {snapshot.rollouts} rollouts failed"))
    parts += [(9, f"{snapshot.requests_done} requests"), (7, f"{snapshot.requests_in_flight} in flight")]
    if snapshot.reward_mean is not None:
        parts.append((3, f"reward {snapshot.reward_mean:.3f}"))
    if compared := snapshot.groups_equal + snapshot.groups_spread:
        parts.append((8, f"{100 * snapshot.groups_equal / compared:.0f}% equal groups"))
    parts += [(4, f"{tokens_per_s:.0f} tokens/s"), (10, duration(snapshot.seconds))]
    if (eta := eta_text(snapshot, rollouts_per_s, group_size)) is not None:
        parts.append((1, f"ETA {eta}"))
    if snapshot.paused:
        parts.append((1, f"paused: {snapshot.paused}"))
    elif snapshot.requests_in_flight and speed.silent() >= _SILENT:
        parts.append((1, f"no answer for {duration(speed.silent())}"))
    return parts


def plain_line(parts: Sequence[tuple[int, str]]) -> str:
    """All of it in one line of plain text."""
    return ", ".join(text for _, text in parts)


def start_line(plan: Plan, total: int | None, done: int, target: str) -> str:
    """What a run is about to do."""
    tasks = "tasks until there are no more" if total is None else counted(total, "task")
    if plan.selection.adaptive and plan.limit is not None:
        tasks = f"{counted(plan.limit * plan.most_rollouts, 'rollout')} of adaptive groups"
    before = f" ({done} done before)" if done else ""
    model = plan.model or "the server's model"
    return (
        f"{plan.environment.name} with {model}: {tasks}{before}, {counted(plan.group_size, 'rollout')} each, "
        f"{counted(plan.execution.workers, 'worker')} -> {target}"
    )


def summary_lines(summary: RunSummary, *, verbose: bool = False) -> list[str]:
    """How a run ended: the counts. Its result is the command's last word, see ending.py."""
    total = summary.groups_total
    groups = counted(summary.groups_done, "group") if total is None else counted(total, "group")
    first = f"{summary.state}: {groups if total is None else f'{summary.groups_done} of {groups}'}"
    if summary.groups_resumed:
        first += f" ({summary.groups_resumed} from before)"
    if summary.groups_failed:
        first += f", {summary.groups_failed} failed"
    lines = [f"{first}, {counted(summary.rollouts, 'rollout')} in {duration(summary.seconds)}"]
    if summary.rollouts_failed:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(summary.failures.items()))
        lines.append(f"failed rollouts: {summary.rollouts_failed}" + (f" ({reasons})" if reasons else ""))
    for name, counts in summary.environments.items():
        lines.append(_of_member(name, counts))
    if summary.parse_failures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in summary.parse_failures.items())
        lines.append(f"faults in tool calls: {sum(summary.parse_failures.values())} ({kinds})")
    if summary.completion_tokens:
        # Of a resumed run the time of a killed session may be missing.
        timed = summary.seconds > 0 and not summary.groups_resumed
        speed = f", {summary.completion_tokens / summary.seconds:.0f}/s" if timed else ""
        lines.append(f"tokens: {summary.prompt_tokens} prompt, {summary.completion_tokens} completion{speed}")
    else:
        lines += _billed(summary)
    if verbose:
        useful = summary.useful_per_1000
        lines += [] if useful is None else [f"groups with spread: {useful:.1f} per 1000 rollouts"]
        lines += [f"reward {name}: {value:.4g}" for name, value in summary.rewards.items()]
        lines += [f"metric {name}: {value:.4g}" for name, value in summary.metrics.items()]
        ends = ", ".join(f"{count} {reason}" for reason, count in summary.stop_reasons.items())
        lines += [f"ended by: {ends}"] if ends else []
        lines.append(f"requests: {summary.requests}, {summary.retries} retries, most in flight {summary.max_in_flight}")
    return [*lines, *cost_lines(summary)]


def _of_member(name: str, counts: Mapping[str, Any]) -> str:
    """The counts of a mixture's member."""
    mean = counts.get("reward_mean")
    reward = "" if mean is None else f", reward {mean:.3g}"
    return (
        f"{name}: {counted(int(counts['tasks']), 'task')}, {counted(int(counts['rollouts']), 'rollout')}{reward}, "
        f"{counted(int(counts['spread_groups']), 'group')} with spread"
    )


def _billed(summary: RunSummary) -> list[str]:
    """Tokens as the server billed them, where it says how many there were in all but not in which reply."""
    from atropos_cli.rollout.costs import total

    kinds = {kind: total(summary.usage, f"{kind}_tokens") for kind in ("prompt", "completion")}
    return (
        [f"tokens billed: {kinds['prompt']:.0f} prompt, {kinds['completion']:.0f} completion"]
        if any(kinds.values())
        else []
    )


def cost_lines(summary: RunSummary) -> list[str]:
    """What it came to: tokens of kinds that have a price of their own, money, replies that were there already."""
    from atropos_cli.rollout.costs import money, total

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
        for model, counts in summary.usage.items():
            if free := counts.get("unpriced"):
                lines.append(f"not in the cost: {counted(int(free), 'request')} to {model}, which has no price")
    if hits := total(summary.usage, "cache_hits"):
        were = "reply was" if hits == 1 else "replies were"
        lines.append(f"cache: {hits:.0f} {were} there already and cost nothing")
    return lines


class QuietReporter:
    """Says nothing: what a run came to is said by the command that made it."""

    def started(self, plan: Plan, total: int | None, done: int) -> None: ...
    def progress(self, snapshot: Snapshot) -> None: ...
    def event(self, kind: str, message: str) -> None: ...
    def examined(self, found: Examined) -> None: ...
    def finished(self, summary: RunSummary) -> None: ...

    def close(self) -> None:
        """Leave the terminal as it was. Safe to call twice."""

    def conclude(self) -> None:
        """Say how it ended, if the run got that far. Kept apart from `finished`: a broken pipe ends in silence."""


class PlainReporter(QuietReporter):
    """Lines on a stream that is no terminal: no escape codes, no carriage returns."""

    def __init__(
        self,
        target: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        verbose: bool = False,
    ) -> None:
        self._target = target
        self._stream = stream
        self._clock = clock
        self._verbose = verbose
        self._speed = Speed()
        self._began = clock()
        self._next = self._began + PLAIN_EVERY
        self._group_size = 1
        self._said: set[tuple[str, str]] = set()
        self._summary: RunSummary | None = None

    def started(self, plan: Plan, total: int | None, done: int) -> None:
        self._began = self._clock()
        self._next = self._began + PLAIN_EVERY
        self._group_size = plan.group_size
        self._line(start_line(plan, total, done, self._target))

    def progress(self, snapshot: Snapshot) -> None:
        self._speed.add(snapshot)
        moment = self._clock()
        if moment >= self._next:
            self._next = moment + min(_PLAIN_MOST, max(PLAIN_EVERY, _PLAIN_SHARE * (moment - self._began)))
            self._line(plain_line(progress_parts(snapshot, self._speed, self._group_size)))

    def event(self, kind: str, message: str) -> None:
        if (kind, message) not in self._said:
            self._said.add((kind, message))
            self._line(message)

    def finished(self, summary: RunSummary) -> None:
        self._summary = summary

    def conclude(self) -> None:
        self.close()
        for line in summary_lines(self._summary, verbose=self._verbose) if self._summary is not None else ():
            self._line(line)

    def _line(self, text: str) -> None:
        try:
            print(printable(text, lines=False), file=self._stream or sys.stderr, flush=True)
        except (OSError, ValueError):
            return  # a closed stderr must not end the run


class BarReporter(PlainReporter):
    """A line that is drawn anew, with events above it."""

    def __init__(self, target: str, stream: TextIO | None = None, *, verbose: bool = False) -> None:
        super().__init__(target, stream, verbose=verbose)
        self._status = StatusLine(stream)

    def progress(self, snapshot: Snapshot) -> None:
        self._speed.add(snapshot)
        done = snapshot.groups_done / snapshot.groups_total if snapshot.groups_total else None
        self._status.show(progress_parts(snapshot, self._speed, self._group_size), done)

    def finished(self, summary: RunSummary) -> None:
        self.close()
        super().finished(summary)

    def close(self) -> None:
        self._status.close()

    def _line(self, text: str) -> None:
        self._status.clear()
        super()._line(text)


def make_reporter(target: str, out: Output, *, data: bool = False) -> QuietReporter:
    """The reporter that suits stderr. `target`: where the groups go, as the user named it; data: to stdout."""
    if out.quiet:
        return QuietReporter()
    # Groups on the same terminal would be written into the line.
    if is_rich_terminal(sys.stderr) and not (data and is_rich_terminal(data_stream())):
        return BarReporter(target, verbose=out.verbose)
    return PlainReporter(target, verbose=out.verbose)
