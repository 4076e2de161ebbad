"""How the engine tells what it is doing: snapshots and events, without knowing who shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.run import RunSummary
from atropos_cli.io.lost import LostTask
from atropos_cli.rollout.totals import Totals

if TYPE_CHECKING:
    from atropos_cli.rollout.dispatch import Dispatcher


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a run at one moment. `paused` says why no requests are sent, None while they are.

    rollouts counts those of finished groups, rollouts_done also those that wait for the rest of their group.
    completion_tokens are those of this session's answers. reward_mean, groups_equal and groups_spread are over the
    groups that are written; groups of fewer than two rewards are in neither count.
    """

    groups_done: int
    groups_failed: int
    groups_total: int | None
    rollouts: int
    rollouts_failed: int
    requests_in_flight: int
    completion_tokens: int
    seconds: float
    paused: str | None
    rollouts_done: int = 0
    requests_done: int = 0
    reward_mean: float | None = None
    groups_equal: int = 0
    groups_spread: int = 0
    totals: Totals | None = None
    """What the run has counted so far; it goes on counting."""

    @classmethod
    def of(
        cls, totals: Totals, dispatcher: Dispatcher | None, over: int, groups: tuple[int, int | None], seconds: float
    ) -> Snapshot:
        """over: rollouts that have ended in groups that have not; groups: how many are done, of how many."""
        return cls(
            groups_done=groups[0],
            groups_failed=len(totals.lost),
            groups_total=groups[1],
            rollouts=totals.rollouts,
            rollouts_failed=totals.rollouts_failed,
            requests_in_flight=dispatcher.in_flight if dispatcher else 0,
            completion_tokens=dispatcher.completion_tokens if dispatcher else 0,
            seconds=seconds,
            paused=dispatcher.paused if dispatcher else None,
            rollouts_done=totals.rollouts + over,
            requests_done=dispatcher.succeeded if dispatcher else 0,
            reward_mean=totals.reward.mean if totals.reward.n else None,
            groups_equal=totals.zero_std_groups,
            groups_spread=totals.spread_groups,
            totals=totals,
        )


@dataclass(frozen=True, slots=True)
class Examined:
    """The held-out tasks of a run that pushes its groups, at a step of the trainer; folder: where evaluations go."""

    step: int
    plan: Plan
    groups: Sequence[ScoredGroup]
    lost: Sequence[LostTask]
    folder: Path


class Reporter(Protocol):
    """Receives what a run has to say. Methods must return quickly and not raise."""

    def started(self, plan: Plan, total: int | None, done: int) -> None: ...
    def progress(self, snapshot: Snapshot) -> None: ...
    def event(self, kind: str, message: str) -> None: ...
    def examined(self, found: Examined) -> None: ...
    def finished(self, summary: RunSummary) -> None: ...


class SilentReporter:
    """Says nothing."""

    def started(self, plan: Plan, total: int | None, done: int) -> None:
        return None

    def progress(self, snapshot: Snapshot) -> None:
        return None

    def event(self, kind: str, message: str) -> None:
        return None

    def examined(self, found: Examined) -> None:
        return None

    def finished(self, summary: RunSummary) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Rolling:
    """How far the rollouts for one training step, or for an evaluation of it, are. Tokens are since training began."""

    step: int
    suite: str | None
    groups_done: int
    groups_total: int
    rollouts_done: int
    requests_in_flight: int
    completion_tokens: int
