"""What is kept for each task and each episode while the rollouts stream by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from atropos_cli.analysis.success import TOLERANCE
from atropos_cli.stats.streaming import finite


@dataclass(slots=True)
class TaskTotal:
    """Rollouts of one task, over all its groups.

    own, own_yes: rollouts (of turn groups: episodes) with a verdict, and those that it calls a success.
    turns: groups that were turns of episodes. unjudged, broken: episodes without a verdict, and that ended in failure.
    reached: rewards that reach the given threshold. at_best: rewards equal to `best`.
    rows: rollouts that stood in rows of their own, whose group is the task.
    """

    env: str = ""
    label: str = ""
    rollouts: int = 0
    scored: int = 0
    failed: int = 0
    own: int = 0
    own_yes: int = 0
    reached: int = 0
    at_best: int = 0
    rows: int = 0
    turns: int = 0
    unjudged: int = 0
    broken: int = 0
    total: float = 0.0
    best: float | None = None
    worst: float | None = None

    def add_reward(self, reward: float) -> None:
        self.scored += 1
        self.total += reward
        if self.best is None or reward > self.best + TOLERANCE:
            self.best, self.at_best = reward, 1
        elif reward >= self.best - TOLERANCE:
            self.at_best += 1
        if self.worst is None or reward < self.worst:
            self.worst = reward

    @property
    def mean(self) -> float | None:
        return finite(self.total / self.scored) if self.scored else None

    def judge(self, episode: EpisodeTotal) -> None:
        """Count an episode of the task as a rollout."""
        self.broken += episode.broken
        if not episode.broken:
            self.own += episode.verdict is not None
            self.own_yes += episode.verdict is True
            self.unjudged += episode.verdict is None

    def merge(self, other: TaskTotal) -> None:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.best is not None:
            if self.best is None or other.best > self.best + TOLERANCE:
                self.best, self.at_best = other.best, other.at_best
            elif other.best >= self.best - TOLERANCE:
                self.at_best += other.at_best
        if other.worst is not None:
            self.worst = other.worst if self.worst is None else min(self.worst, other.worst)

    def as_row(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_row(cls, row: list[Any]) -> Self:
        return cls(*row)


_SUMS = ("rollouts", "scored", "failed", "own", "own_yes", "reached", "rows", "turns", "unjudged", "broken", "total")


@dataclass(slots=True)
class EpisodeTotal:
    """The groups of one episode: how many turns, the sum of their mean rewards, and how it ended.

    task: the key of its task. verdict: the last one that a turn carries. broken: all of its last turn failed.
    """

    env: str = ""
    task: str = ""
    turns: int = 0
    scored: int = 0
    total: float = 0.0
    verdict: bool | None = None
    broken: bool = False

    def merge(self, other: EpisodeTotal) -> None:
        """Take in what came later."""
        self.turns += other.turns
        self.scored += other.scored
        self.total += other.total
        self.verdict = other.verdict if other.verdict is not None else self.verdict
        self.broken = other.broken

    def as_row(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_row(cls, row: list[Any]) -> Self:
        return cls(*row)
