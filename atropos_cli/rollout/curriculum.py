"""Curricula: kinds of tasks that are solved at about the target rate come more often, and hard tasks come again.

Tasks are chosen in rounds of `window`. Round r goes by the results of the rounds up to r - 2, so that workers are busy
while results come in, and the choice does not depend on which of them is faster. The weight of a kind falls linearly
from 1 at the target rate to 0.05 at the worst one, and is 1 before there are results; the rate of a kind is the mean
success of its last `window` results. Members of a mixture keep their weights: kinds compete within a member.

All of it is in the run's curriculum.jsonl: the success of each task before its groups are written, and each round's
choice with the results it has seen. A resumed run repeats the choices of that file.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atropos_cli.domain.base import is_finite
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.selection import Selection
from atropos_cli.domain.task import Task
from atropos_cli.errors import DataError, UsageError
from atropos_cli.io.append import AppendLog
from atropos_cli.ports.environment import TaskStream
from atropos_cli.rollout.mixture import Shares

FILE = "curriculum.jsonl"
_FLOOR = 0.05
_FIRST_LOOK = 256
"""Tasks that are looked through for kinds before the first round."""
_FARTHEST = 1024
"""Tasks that are looked through for one of a kind."""
_REPLAYS = 3
"""How often a task may come again."""

Reading = Callable[[Task], bool]


@dataclass(slots=True)
class _Kind:
    """The tasks of a kind. waiting: places not taken yet; all: every place, where they come again each epoch."""

    results: deque[float]
    waiting: deque[int] = field(default_factory=deque)
    all: list[int] = field(default_factory=list)
    credit: float = 0.0
    epoch: int = 0


class Pool:
    """The tasks of one environment by kind.

    most: how many of them there are at most. cycle: after the last one they come again, in another order by this seed.
    """

    def __init__(
        self,
        name: str,
        source: Sequence[Task],
        selection: Selection,
        *,
        most: int | None,
        cycle: str | None,
        accept: Reading,
    ) -> None:
        self.name = name
        self.source = source
        length = source.length if isinstance(source, TaskStream) else len(source)
        self.length = min((bound for bound in (length, most) if bound is not None), default=None)
        self.keys: set[str] = set()
        self.found_key = False
        self.skipped = 0
        self._selection, self._cycle, self._accept = selection, cycle, accept
        self._kinds: dict[str, _Kind] = {}
        self._kind_of: dict[int, str] = {}
        self._next = 0
        self._again: deque[int] = deque()
        self._replays: dict[int, int] = {}
        self._debt = 0.0
        self._look(_FIRST_LOOK)

    def _look(self, count: int, wanted: _Kind | None = None) -> None:
        """Look through some more tasks, until there is one of the wanted kind."""
        for _ in range(count):
            if (self.length is not None and self._next >= self.length) or (wanted is not None and wanted.waiting):
                return
            place, task = self._next, self.source[self._next]
            self._next += 1
            if not self._accept(task):
                self.skipped += 1
                continue
            self.keys |= task.info.keys()
            value = task.info.get(str(self._selection.curriculum))
            self.found_key = self.found_key or value is not None
            name = str(value) if isinstance(value, str | int | float) else ""
            kind = self._kinds.setdefault(name, _Kind(deque(maxlen=self._selection.curriculum_window)))
            kind.waiting.append(place)
            self._kind_of[place] = name
            if self._cycle is not None:
                kind.all.append(place)

    def weight(self, kind: _Kind) -> float:
        """Of a kind in the next round."""
        if not kind.results:
            return 1.0
        target = self._selection.curriculum_target
        rate = sum(kind.results) / len(kind.results)
        return max(_FLOOR, 1.0 - abs(rate - target) / max(target, 1.0 - target))

    def weights(self) -> dict[str, float]:
        """By kind, for the log."""
        return {name: round(self.weight(kind), 4) for name, kind in self._kinds.items()}

    def take(self) -> int | None:
        """The place of the next task; None when there are no more."""
        self._debt = min(1.0, self._debt + self._selection.curriculum_replay)
        if self._debt >= 1.0 - 1e-9 and self._again:
            self._debt -= 1.0
            return self._again.popleft()
        alive = list(self._kinds.items())
        whole = sum(self.weight(kind) for _, kind in alive)
        for _, kind in alive:
            kind.credit += self.weight(kind) / whole
        for name, kind in sorted(alive, key=lambda item: -item[1].credit):
            if not kind.waiting:
                self._look(_FARTHEST, kind)
                self._refill(name, kind)
            if kind.waiting:
                kind.credit -= 1.0
                return kind.waiting.popleft()
        return None

    def _refill(self, name: str, kind: _Kind) -> None:
        whole = self.length is not None and self._next >= self.length
        if kind.waiting or self._cycle is None or not whole:
            return
        kind.epoch += 1
        order = list(kind.all)
        random.Random(f"{self._cycle}/{self.name}/{name}/{kind.epoch}").shuffle(order)
        kind.waiting.extend(order)

    def result(self, place: int, success: float) -> None:
        """The success of a task."""
        self._kinds[self._kind_of[place]].results.append(success)
        replays = self._replays.get(place, 0)
        if self._selection.curriculum_replay and success < self._selection.curriculum_target and replays < _REPLAYS:
            self._replays[place] = replays + 1
            self._again.append(place)


class Curriculum:
    """Which task comes at which place, by the results so far. folder None: nothing is kept."""

    def __init__(
        self,
        pools: Sequence[Pool],
        weights: Sequence[float],
        selection: Selection,
        *,
        seed: object,
        folder: Path | None,
        fsync: str = "interval",
    ) -> None:
        self._pools, self._window = pools, selection.curriculum_window
        self._shares = Shares(weights, seed)
        self._taking_part = list(range(len(pools)))
        self._picks: list[tuple[int, int]] = []
        self._outcomes: dict[int, float | None] = {}
        self._log: AppendLog | None = None
        self.ended = False
        _check_key(pools, str(selection.curriculum))
        if folder is not None:
            self._recall(folder / FILE)
            self._log = AppendLog(folder / FILE, fsync=fsync)

    @property
    def decided(self) -> int:
        """How many places have their task."""
        return len(self._picks)

    def ready(self, index: int) -> bool:
        """Are the results there that the choice for this place goes by?"""
        if index < len(self._picks) or self.ended:
            return True
        seen = range(max(0, len(self._picks) - 2 * self._window), max(0, len(self._picks) - self._window))
        return all(place in self._outcomes for place in seen)

    def pick(self, index: int) -> tuple[int, int] | None:
        """(member, place among the member's tasks); None behind the last task."""
        while len(self._picks) <= index and not self.ended:
            self._decide()
        return self._picks[index] if index < len(self._picks) else None

    def outcome(self, index: int, success: float | None) -> None:
        """The success of the task at a place; None without a reward. To be called before its groups are written."""
        if len(self._picks) - 2 * self._window > index - index % self._window:
            return  # its round has been taken into account
        self._outcomes[index] = success
        self._write({"task": index, "success": success})

    def known(self, index: int) -> None:
        """A task of an earlier session is done, whatever is known of it."""
        if index >= len(self._picks) - 2 * self._window:
            self._outcomes.setdefault(index, None)

    def close(self) -> None:
        """Close the file."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _decide(self) -> None:
        start = len(self._picks) - 2 * self._window
        saw = [self._outcomes.pop(start + n, None) for n in range(self._window)] if start >= 0 else []
        self._see(start, saw)
        picks: list[tuple[int, int]] = []
        while len(picks) < self._window and self._taking_part:
            member = self._shares.next(self._taking_part)
            place = self._pools[member].take()
            if place is None:
                self._taking_part.remove(member)
            else:
                picks.append((member, place))
        weights = {pool.name: pool.weights() for pool in self._pools}
        self._write({"round": len(self._picks) // self._window, "saw": saw, "weights": weights, "picks": picks})
        self._picks += picks
        self.ended = not self._taking_part

    def _see(self, start: int, saw: Sequence[float | None]) -> None:
        for index, success in enumerate(saw, start):
            if success is not None:
                member, place = self._picks[index]
                self._pools[member].result(place, success)

    def _write(self, row: Mapping[str, Any]) -> None:
        if self._log is not None:
            self._log.write(json.dumps(row).encode() + b"\n")

    def _recall(self, path: Path) -> None:
        """Decide again as the file says. Raises DataError where the tasks are others now."""
        for row in _rows(path):
            if "round" not in row:
                self._outcomes[int(row["task"])] = row["success"]
                continue
            start = len(self._picks)
            for place, success in enumerate(row["saw"], start - 2 * self._window):
                self._outcomes[place] = success
            with contextlib.suppress(IndexError, KeyError):
                self._decide()
            if [list(pick) for pick in self._picks[start:]] != row["picks"]:
                raise DataError(
                    f"{path}: the environment's tasks are not those that the run began with",
                    hint="resume with the version of the environment that began it, or give another --output",
                )


def _check_key(pools: Sequence[Pool], key: str) -> None:
    if any(pool.found_key for pool in pools):
        return
    keys = sorted(set().union(*(pool.keys for pool in pools)))
    raise UsageError(
        f"--curriculum {key}: no task has {key!r} in its info",
        hint=f"they have: {', '.join(keys)}" if keys else "their info is empty: this environment has no curriculum",
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of the file; a torn last one is cut off."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    if lines and not lines[-1].endswith(b"\n"):
        os.truncate(path, sum(map(len, lines[:-1])))
        lines.pop()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            values = row["saw"] if "round" in row else [row["success"]]
            fits = all(value is None or is_finite(value) for value in values)
            fits = fits and ("round" not in row or isinstance(row["picks"], list))
            int(row["task"] if "round" not in row else 0)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}, line {number}: {error!r}", hint="give another --output") from error
        if not fits:
            raise DataError(f"{path}, line {number} is damaged", hint="give another --output")
        yield row


def success_of(groups: Sequence[ScoredGroup], marks: float) -> float | None:
    """The mean reward of a task's rollouts as part of full marks, between 0 and 1; None where none has a reward."""
    rewards = [one.reward for group in groups for one in group.rollouts if one.reward is not None]
    if not rewards:
        return None
    return min(1.0, max(0.0, sum(rewards) / len(rewards) / marks))
