"""Command lines of atropos as its own parser reads them, for rooms and plugins below the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from atropos_cli.console.session import Session
from atropos_cli.jobs.order import Order, Wanted


class Lines(Protocol):
    """What can be asked about a command and its arguments without running it."""

    def commands(self) -> list[str]:
        """The names of all commands, those of plugins last."""
        ...

    def mistake(self, words: Sequence[str], env: Mapping[str, str]) -> str | None:
        """What is wrong with a command line, in one line; None when it can be parsed."""
        ...

    def model(self, words: Sequence[str]) -> str | None:
        """The model that a command names."""
        ...

    def order(self, session: Session, words: Sequence[str], wanted: Wanted, *, example: str = "") -> Order:
        """The command resolved as it would be executed now. Raises UsageError, ConfigError."""
        ...


def lines_of(session: Session) -> Lines:
    """Those of the program that made the session."""
    found: Lines = session.lines()
    return found
