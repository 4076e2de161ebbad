"""Two runs on the same tasks: which task got better, which worse. Made in the background, since all must be read."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from atropos_cli.analysis.analysis import task_label
from atropos_cli.cli.view.runs import Run
from atropos_cli.io.records import Record
from atropos_cli.stats.streaming import finite

SORTS = ("worse", "better", "order")


@dataclass(slots=True)
class _Side:
    """A task in one run: its first group, and the mean of its rewards."""

    position: int
    total: float = 0.0
    scored: int = 0
    failed: int = 0

    def add(self, record: Record) -> None:
        for rollout in record.rollouts:
            if rollout.failure is not None:
                self.failed += 1
            elif rollout.score is not None:
                self.total += rollout.score
                self.scored += 1

    @property
    def mean(self) -> float | None:
        return finite(self.total / self.scored) if self.scored else None


class Diff:
    """The comparison of run a with run b. `start` begins it; `rows` answers once `ready` is set."""

    def __init__(self, a: Run, b: Run) -> None:
        self._runs = (a, b)
        self.ready = threading.Event()
        self.done = 0
        self.problem: str | None = None
        self._sides: tuple[dict[bytes, _Side], dict[bytes, _Side]] = ({}, {})
        self._labels: dict[bytes, str] = {}
        self._orders: dict[str, list[bytes]] = {}
        self._stop = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._read, name="diff", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    @property
    def total(self) -> int:
        return sum(map(len, self._runs))

    def compare(self) -> None:
        """Read both runs. Called by the thread, or directly."""
        for run, sides in zip(self._runs, self._sides, strict=True):
            for position, record in run.groups():
                if self._stop.is_set():
                    return
                self.done += 1
                if not isinstance(record, Record):
                    continue
                key = blake2b(record.task_key.encode("utf-8", "replace"), digest_size=16).digest()
                side = sides.get(key)
                if side is None:
                    side = sides[key] = _Side(position)
                    self._labels.setdefault(key, task_label(record))
                side.add(record)
        both = [key for key in self._sides[0] if key in self._sides[1]]
        known = [key for key in both if self._delta(key) is not None]
        self._orders = {
            "order": both + [key for key in self._sides[0] if key not in self._sides[1]],
            "worse": sorted(known, key=lambda key: self._delta(key) or 0.0),
            "better": sorted(known, key=lambda key: -(self._delta(key) or 0.0)),
        }
        self.ready.set()

    def _read(self) -> None:
        try:
            self.compare()
        except (OSError, ValueError) as error:
            self.problem = f"{type(error).__name__}: {error}"
            self.ready.set()

    def _delta(self, key: bytes) -> float | None:
        a, b = (sides[key].mean for sides in self._sides)
        return None if a is None or b is None else finite(b - a)

    def counts(self) -> dict[str, Any]:
        """Tasks by how they changed; the mean change over tasks with rewards in both runs."""
        a, b = self._sides
        deltas = [delta for key in a if key in b and (delta := self._delta(key)) is not None]
        return {
            "both": sum(key in b for key in a),
            "only_a": sum(key not in b for key in a),
            "only_b": sum(key not in a for key in b),
            "better": sum(delta > 1e-8 for delta in deltas),
            "worse": sum(delta < -1e-8 for delta in deltas),
            "same": sum(abs(delta) <= 1e-8 for delta in deltas),
            "mean_change": finite(sum(deltas) / len(deltas)) if deltas else None,
            "runs": [self._totals(sides) for sides in self._sides],
        }

    @staticmethod
    def _totals(sides: dict[bytes, _Side]) -> dict[str, Any]:
        """Of all tasks of a run."""
        scored = sum(side.scored for side in sides.values())
        return {
            "tasks": len(sides),
            "scored": scored,
            "failed": sum(side.failed for side in sides.values()),
            "mean": finite(sum(side.total for side in sides.values()) / scored) if scored else None,
        }

    def rows(self, sort: str, start: int, limit: int) -> tuple[list[dict[str, Any]], int]:
        """(rows from `start` on, how many there are)."""
        order = self._orders.get(sort, [])
        rows = []
        for key in order[start : start + limit]:
            a, b = (sides.get(key) for sides in self._sides)
            rows.append(
                {
                    "task": self._labels[key],
                    "a": a.position if a else None,
                    "b": b.position if b else None,
                    "mean_a": a.mean if a else None,
                    "mean_b": b.mean if b else None,
                    "delta": self._delta(key) if a and b else None,
                }
            )
        return rows, len(order)
