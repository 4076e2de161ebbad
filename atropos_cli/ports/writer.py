"""Writers: where scored groups go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.ports.backend import NoOptions


class Writer(ABC):
    """Writes groups durably, one at a time, in the order they are finished.

    A writer that can resume reports the ids already written by `open`; the engine never writes an
    id twice. Errors of the disk are DataError (exit 6), and leave every earlier group whole.
    """

    name: ClassVar[str]
    Config: ClassVar[type[BaseModel]] = NoOptions
    filename: ClassVar[str | None] = None
    """The file inside the run folder; None for a writer without one (stdout)."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def open(self, folder: Path | None, *, fsync: str = "interval") -> Iterator[str]:
        """Repair what a crash left, yield the ids of all complete tasks' groups, then be ready to append."""

    @abstractmethod
    def write(self, groups: tuple[ScoredGroup, ...]) -> None:
        """Append all groups of one task, together."""

    @abstractmethod
    def close(self) -> None:
        """Flush, force to disk as the policy says, release."""
