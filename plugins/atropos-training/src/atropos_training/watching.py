"""How a training reports its progress, without knowing who shows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from atropos_cli.sdk.engine import Player, Rolling

_TELL_EVERY = 0.5


class TrainWatcher(Protocol):
    """Is told how training goes on. Methods must return quickly and not raise; rolling() comes from another thread."""

    def say(self, text: str) -> None: ...
    def resumed(self, step: int) -> None: ...
    def step(self, step: int, total: int | None, values: Mapping[str, float | None]) -> None: ...
    def rolling(self, rolling: Rolling) -> None: ...


class SilentWatcher:
    """Says nothing."""

    def say(self, text: str) -> None:
        return None

    def resumed(self, step: int) -> None:
        return None

    def step(self, step: int, total: int | None, values: Mapping[str, float | None]) -> None:
        return None

    def rolling(self, rolling: Rolling) -> None:
        return None


class Rolls(Protocol):
    """A watcher of rollouts, or what hands their progress on to one."""

    def rolling(self, rolling: Rolling) -> None: ...


def ticker(watcher: Rolls, progress: Callable[[], Rolling]) -> Callable[[], None]:
    """Called often, it reports the progress now and then."""
    told = 0.0

    def tick() -> None:
        nonlocal told
        if (moment := time.monotonic()) - told >= _TELL_EVERY:
            told = moment
            watcher.rolling(progress())

    return tick


def ticker_of(
    player: Player, suites: Mapping[str, Player], watcher: Rolls, step: int, tasks: int
) -> Callable[[], None]:
    """A ticker for what this player plays: the suite that is its own, or rollouts to train on."""
    suite = next((name for name, one in suites.items() if one is player), None)
    return ticker(watcher, lambda: player.progress(step, suite, tasks))
