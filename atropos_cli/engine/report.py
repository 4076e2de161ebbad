"""How the engine tells what it is doing: snapshots and events, without knowing who shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from atropos_cli.domain.plan import Plan
from atropos_cli.domain.run import RunSummary
from atropos_cli.engine.dispatch import Dispatcher
from atropos_cli.engine.totals import Totals


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a run at one moment. `paused` says why no requests are sent, None while they are."""

    groups_done: int
    groups_failed: int
    groups_total: int | None
    rollouts: int
    rollouts_failed: int
    requests_in_flight: int
    completion_tokens: int
    seconds: float
    paused: str | None


def snapshot_of(
    totals: Totals, dispatcher: Dispatcher | None, done: int, total: int | None, seconds: float
) -> Snapshot:
    """The state of a run by what was counted. dispatcher None: it has not begun."""
    return Snapshot(
        groups_done=done,
        groups_failed=len(totals.lost),
        groups_total=total,
        rollouts=totals.rollouts,
        rollouts_failed=totals.rollouts_failed,
        requests_in_flight=dispatcher.in_flight if dispatcher else 0,
        completion_tokens=totals.completion_tokens,
        seconds=seconds,
        paused=dispatcher.paused if dispatcher else None,
    )


class Reporter(Protocol):
    """Receives what a run has to say. Methods must return quickly and not raise."""

    def started(self, plan: Plan, total: int | None, done: int) -> None: ...
    def progress(self, snapshot: Snapshot) -> None: ...
    def event(self, kind: str, message: str) -> None: ...
    def finished(self, summary: RunSummary) -> None: ...


class SilentReporter:
    """Says nothing."""

    def started(self, plan: Plan, total: int | None, done: int) -> None:
        return None

    def progress(self, snapshot: Snapshot) -> None:
        return None

    def event(self, kind: str, message: str) -> None:
        return None

    def finished(self, summary: RunSummary) -> None:
        return None
