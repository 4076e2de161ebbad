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

    A writer that can resume reports the tasks already written by `open`; the engine never writes a
    task twice. Errors of the disk are DataError (exit 6), and leave every earlier group whole.
    """

    name: ClassVar[str]
    Config: ClassVar[type[BaseModel]] = NoOptions
    filename: ClassVar[str | None] = None
    """The file inside the run folder; None for a writer without one (stdout)."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def open(self, folder: Path | None, *, prefix: str, fsync: str = "interval") -> Iterator[int]:
        """Repair what a crash left, yield the index of every complete task, then be ready to append.

        prefix is the digest prefix of the plan's group ids; a group of another plan is a DataError.
        fsync is "group", "interval" or "never". The iterator must be exhausted before write().
        """

    @abstractmethod
    def write(self, groups: tuple[ScoredGroup, ...]) -> None:
        """Append all groups of one task, together."""

    @abstractmethod
    def close(self) -> None:  # called once, also after errors
        """Flush, force to disk as the policy says, release."""
