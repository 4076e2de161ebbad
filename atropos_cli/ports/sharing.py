"""Rows given to others, as `--push-to-hub` does. A plugin that knows such a place implements Share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Repository:
    """Where rows go: OWNER/NAME, a branch (made when it is not there), and what a new repository is like."""

    name: str
    private: bool = False
    revision: str | None = None
    license: str | None = None


class Share(ABC):
    """One repository. Both methods raise AtroposError."""

    @abstractmethod
    def check(self) -> None:
        """Before the rows are made: can they be pushed at all?"""

    @abstractmethod
    def push(self, given: str, files: Mapping[str, Sequence[Path]], card: Mapping[str, Any]) -> str:
        """Push all files, or none; returns their address.

        given: the output as the user named it. files: by split. card: as it is stored beside the rows.
        """
