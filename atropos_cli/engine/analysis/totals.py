"""What is kept for each task and each episode while the rollouts stream by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from atropos_cli.domain.streaming import finite
from atropos_cli.engine.analysis.success import TOLERANCE


@dataclass(slots=True)
class TaskTotal:
    """Attempts at one task, over all its groups.

    own, own_yes: attempts with the environment's own verdict, and those it calls a success.
    reached: rewards that reach the given threshold. at_best: rewards equal to `best`.
    rows: attempts that stood in rows of their own, whose group is the task.
    """

    env: str = ""
    label: str = ""
    attempts: int = 0
    scored: int = 0
    failed: int = 0
    own: int = 0
    own_yes: int = 0
    reached: int = 0
    at_best: int = 0
    rows: int = 0
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

    def merge(self, other: TaskTotal) -> None:
        for name in ("attempts", "scored", "failed", "own", "own_yes", "reached", "rows", "total"):
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


@dataclass(slots=True)
class EpisodeTotal:
    """The groups of one episode: how many turns, and the sum of their mean rewards."""

    env: str = ""
    turns: int = 0
    scored: int = 0
    total: float = 0.0

    def merge(self, other: EpisodeTotal) -> None:
        self.turns += other.turns
        self.scored += other.scored
        self.total += other.total

    def as_row(self) -> list[Any]:
        return [self.env, self.turns, self.scored, self.total]

    @classmethod
    def from_row(cls, row: list[Any]) -> Self:
        return cls(*row)
