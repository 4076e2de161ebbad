"""Caps that need the whole data: a number of rollouts for each task, and equal numbers from each class."""

from __future__ import annotations

from array import array
from collections import defaultdict
from hashlib import blake2b

from atropos_cli.datasets.filter.spec import FilterSpec
from atropos_cli.io.records import Record, StoredRollout


class Caps:
    """First `add` every surviving rollout in order, then `decide`; `keeps(i)` answers for the i-th added.

    Costs 24 bytes a rollout, and a table of tasks and classes.
    """

    def __init__(self, spec: FilterSpec) -> None:
        self._spec = spec
        self._rank = array("d")
        self._task = array("L")
        self._class = array("L")
        self._tasks: dict[str, int] = {}
        self._classes: dict[str, int] = {}
        self._reasons = bytearray()

    def add(self, record: Record, rollout: StoredRollout) -> None:
        self._rank.append(self._rank_of(record, rollout))
        task = self._tasks.setdefault(record.task_key, len(self._tasks))
        self._task.append(task)
        self._class.append(self._classes.setdefault(self._class_of(record), len(self._classes)))

    def _rank_of(self, record: Record, rollout: StoredRollout) -> float:
        """Lower is kept sooner."""
        if self._spec.cap_by == "score":
            return float("inf") if rollout.score is None else -rollout.score
        if self._spec.cap_by == "random":
            place = f"{self._spec.seed}/{record.task_key}/{record.id}/{rollout.index}/{len(self._rank)}"
            return float(int.from_bytes(blake2b(place.encode("utf-8", "replace"), digest_size=6).digest(), "big"))
        return 0.0

    def _class_of(self, record: Record) -> str:
        kind = self._spec.balance
        if kind == "task":
            return record.task_key
        return (record.env if kind == "env" else record.task_name) or "" if kind != "none" else ""

    def decide(self) -> None:
        """Apply the cap on tasks, then the balance between classes."""
        self._reasons = bytearray(len(self._rank))
        alive = range(len(self._rank))
        if self._spec.max_per_task is not None:
            self._cut(self._grouped(alive, self._task), self._spec.max_per_task, 1)
        if self._spec.balance != "none":
            classes = self._grouped((i for i in alive if not self._reasons[i]), self._class)
            smallest = min((len(members) for members in classes.values()), default=0)
            self._cut(classes, smallest, 2)

    def _grouped(self, indices: object, keys: array[int]) -> dict[int, array[int]]:
        groups: dict[int, array[int]] = defaultdict(lambda: array("Q"))
        for i in indices:  # type: ignore[attr-defined]
            groups[keys[i]].append(i)
        return groups

    def _cut(self, groups: dict[int, array[int]], limit: int, reason: int) -> None:
        for members in groups.values():
            if len(members) > limit:
                for i in sorted(members, key=lambda i: (self._rank[i], i))[limit:]:
                    self._reasons[i] = reason

    def reason(self, i: int) -> str | None:
        """Why the i-th rollout is dropped, or None."""
        found = self._reasons[i]
        if not found:
            return None
        return f"at most {self._spec.max_per_task} a task" if found == 1 else f"balance of {self._spec.balance}"
