"""How a training reports its progress, without knowing who shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from atropos_cli.sdk.engine import Rolling


class TrainWatcher(Protocol):
    """Is told how training goes on. Methods must return quickly and not raise; rolling() comes from another thread."""

    def say(self, text: str) -> None: ...
    def step(self, step: int, total: int | None, values: Mapping[str, float | None]) -> None: ...
    def rolling(self, rolling: Rolling) -> None: ...


class SilentWatcher:
    """Says nothing."""

    def say(self, text: str) -> None:
        return None

    def step(self, step: int, total: int | None, values: Mapping[str, float | None]) -> None:
        return None

    def rolling(self, rolling: Rolling) -> None:
        return None
