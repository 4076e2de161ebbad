"""How the engine tells what it is doing: snapshots and events, without knowing who shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from atropos_cli.domain.plan import Plan
from atropos_cli.domain.run import RunSummary
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
    totals: Totals | None = None
    """What the run has counted so far; it goes on counting."""


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
