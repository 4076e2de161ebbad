"""Failures that repeat from a run's start, as a broken reward makes them: they end the run instead of costing it.

A rollout that got past a stage proves that the stage can work; from then on its failures are data.
"""

from __future__ import annotations

import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from traceback import walk_tb
from typing import Any

from atropos_cli.domain.rollout import Rollout, RolloutFailure, Stage
from atropos_cli.errors import RunFailed

_STAGES: tuple[Stage, ...] = ("reset", "environment", "score")
"""Stages of our own or a plugin's code, in the order in which a rollout comes through them."""
_KINDS = 1000  # different failures that are told apart; a run with more of them has no one cause
_CORE = str(Path(__file__).parents[1])
_BUILTIN = str(Path(__file__).parents[1] / "builtin")
_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})


class FailureWatch:
    """Counts the failures of a run until its stages have worked once. limit: how many alike end it, 0 for never."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open = set(_STAGES) if limit else set()
        self._alike: Counter[tuple[str, ...]] = Counter()
        self._first: dict[tuple[str, ...], tuple[RolloutFailure, str]] = {}

    def look(self, rollouts: Iterable[Rollout]) -> None:
        """Take note of finished rollouts. Raises RunFailed for one failure too many."""
        if not self._open:
            return
        for rollout in rollouts:
            failure = rollout.failure
            if failure is None:
                self._open.clear()
                return
            if failure.stage == "generate":
                self._open.discard("reset")
            elif failure.stage in _STAGES:
                self._open.difference_update(_STAGES[: _STAGES.index(failure.stage)])
                self.fail(failure, rollout.task_id)

    def fail(self, failure: RolloutFailure, task: str) -> None:
        """One failure, of a rollout or of a whole group. Raises RunFailed."""
        if failure.stage not in self._open:
            return
        # Messages may name the task at hand. Where the code is known, its line says that it is the same failure.
        alike = (failure.stage, failure.type, failure.place or failure.message)
        if alike not in self._first:
            if len(self._first) >= _KINDS:
                return
            self._first[alike] = failure, task
        self._alike[alike] += 1
        if self._alike[alike] >= self._limit:
            raise self._error(alike)

    def tell(self, event: Callable[[str, str], None], *, failed: bool) -> None:
        """At the end of a run that failed with fewer of them: the commonest failure of a stage that never worked."""
        if failed and self._open and self._alike:
            alike, count = self._alike.most_common(1)[0]
            first, text = self._text(alike)
            place = f" ({first.place})" if first.place else ""
            event("failure", f"failed {count} times at stage {first.stage!r}: {text}{place}")

    def _text(self, alike: tuple[str, ...]) -> tuple[RolloutFailure, str]:
        first = self._first[alike][0]
        return first, first.message if first.type in first.message else f"{first.type}: {first.message}"

    def _error(self, alike: tuple[str, ...]) -> RunFailed:
        first, text = self._text(alike)
        task = self._first[alike][1]
        return RunFailed(
            f"stage {first.stage!r} failed {self._alike[alike]} times in the same way and never worked: {text} "
            f"({f'{first.place}, ' if first.place else ''}first in task {task!r})",
            hint="fix it and continue with --resume; --same-failures sets how many of them end a run, 0 for never",
        )


def place_of(error: BaseException, owner: Callable[..., Any] | None = None) -> str | None:
    """FILE:LINE of the plugin's code that raised: the innermost line of the file or folder the engine called into.

    Where the engine itself complains of what `owner` returned, that is where `owner` is defined.
    """
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    called = [index for index, (file, _) in enumerate(frames) if not _is_ours(file)]
    if called:
        home = str(Path(frames[called[0]][0]).parent)
        file, line = [frame for frame in frames[called[0] :] if frame[0].startswith(home)][-1]
        return f"{file}:{line}"
    code = getattr(owner, "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _is_ours(file: str) -> bool:
    """Is this code of the core, or of the standard library that it calls others through?"""
    if file.startswith(_CORE):
        return not file.startswith(_BUILTIN)
    return file.startswith(_STANDARD) and "-packages" not in file
