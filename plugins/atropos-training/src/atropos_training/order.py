"""Which task comes at which place of a training run: the same in any process, resumed or not."""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections.abc import Iterable, Sequence

from atropos_cli.sdk import ConfigError, Environment, ScoredGroup, Task, TaskStream, normal_text, words
from atropos_cli.sdk.engine import check_split

Turn = tuple[str, str]
"""Role and text of a message."""

_SYSTEM = ("system", "developer")
_MARKS = str.maketrans("“”„«»。、", '""""".,')
_ENDING = re.compile(r"(?<=[\w\"')\]])[.,;:!?]+(?=\s|$)")  # punctuation of prose; "#.#" is a board, and "3.5" a number
_SPOKEN = re.compile(r"\s*\w[\w\s]*")


def task_digests(task: Task) -> set[bytes]:
    """What two tasks that ask the same thing share: their prompt, or their id where they have none."""
    if not task.prompt:
        return {_digest(f"id\x01{task.id}")}
    return digests_of([(message.role, message.text) for message in task.prompt])


def held_out_digests(tasks: Iterable[Task]) -> frozenset[bytes]:
    """Digests of tasks that a run is evaluated on.

    Where all of them share one system message it is an instruction, and who asks the same under another one, or
    under none, asks the same. Where system messages differ, they are a part of what is asked.
    """
    tasks = list(tasks)
    systems = {tuple(_same(m.text) for m in task.prompt if m.role in _SYSTEM) for task in tasks if task.prompt}
    if len(systems) < 2:
        return frozenset().union(*map(task_digests, tasks))
    return frozenset(
        digest_of([(m.role, m.text) for m in task.prompt]) if task.prompt else _digest(f"id\x01{task.id}")
        for task in tasks
    )


def digests_of(turns: Sequence[Turn]) -> set[bytes]:
    """The digests of a task with this prompt, with and without its system messages."""
    asked = [turn for turn in turns if turn[0] not in _SYSTEM]
    return {digest_of(found) for found in (turns, asked) if found}


def digest_of(turns: Iterable[Turn]) -> bytes:
    """The digest of a prompt: blanks, case, punctuation behind words and the width of signs make no difference."""
    same = ((role, _same(text)) for role, text in turns)
    return _digest("\x00".join(f"{'system' if role in _SYSTEM else role}\x01{text}" for role, text in same if text))


def _same(text: str) -> str:
    """The common part of equivalent texts: the words, and the characters between them, as in a drawn board."""
    text = _ENDING.sub("", normal_text(text).strip().translate(_MARKS))
    return " ".join(words(text)) + "\x02" + _SPOKEN.sub("w", text) if text else ""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class TaskOrder:
    """Task by place. A finite set is gone through once an epoch, each in another order; an endless stream as it comes.

    held_out: digests of tasks that the run is judged by; these are passed over, and `skipped` counts them.
    length: tasks of an epoch, None for an endless stream.
    """

    def __init__(
        self, environment: Environment, split: str, limit: int | None, *, seed: int, held_out: frozenset[bytes]
    ) -> None:
        check_split(environment, split)
        source = environment.tasks(split)
        endless = isinstance(source, TaskStream) and source.length is None and limit is None
        self._tasks: Sequence[Task]
        if isinstance(source, Sequence):
            self._tasks = source
        else:
            self._tasks = list(itertools.islice(source, limit))
        self._seed = seed
        self._held_out = held_out
        self.skipped = 0
        self._scanned = 0
        self._kept: list[int] = []
        self._epoch: tuple[int, list[int]] | None = None
        self.length: int | None = None
        if not endless:
            unbounded = isinstance(self._tasks, TaskStream) and self._tasks.length is None
            available = limit or 0 if unbounded else len(self._tasks)
            self._scan_all(min(available, limit or available))
            self.length = len(self._kept)
            if not self._kept:
                why = "all of them are tasks of the evaluation" if self.skipped else f"split {split!r} is empty"
                raise ConfigError(f"environment {environment.name!r} has no tasks to train on: {why}")

    def task(self, place: int) -> Task:
        """The task at a place; places run from 0 without end."""
        return self._tasks[self._index(place)]

    def note(self, place: int, task: Task, groups: Sequence[ScoredGroup]) -> None:
        """Results change nothing."""

    def close(self) -> None:
        """Nothing is open."""

    def _index(self, place: int) -> int:
        if self.length is None:
            while len(self._kept) <= place:
                self._scan_one()
            return self._kept[place]
        epoch, within = divmod(place, self.length)
        if self._epoch is None or self._epoch[0] != epoch:
            order = list(self._kept)
            random.Random(f"{self._seed}/{epoch}").shuffle(order)
            self._epoch = epoch, order
        return self._epoch[1][within]

    def _scan_all(self, count: int) -> None:
        if not self._held_out:
            self._kept = list(range(count))
            return
        while self._scanned < count:
            self._scan_one()

    def _scan_one(self) -> None:
        index = self._scanned
        self._scanned += 1
        if self._held_out and not self._held_out.isdisjoint(task_digests(self._tasks[index])):
            self.skipped += 1
        else:
            self._kept.append(index)
