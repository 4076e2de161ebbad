"""Commands of plugins with one command per environment: `atropos env check ENV`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atropos_cli.config.commands import CommandOptions
from atropos_cli.console.session import Session

if TYPE_CHECKING:
    from atropos_cli.config.resolve import Resolved
    from atropos_cli.plugins.registry import Registration


@dataclass(frozen=True)
class ChosenEnvironment:
    """The environment that a command was called with, and everything that was configured.

    given_name: what the user typed, as ./file.py:Class.
    """

    session: Session
    registration: Registration
    environment: Any
    resolved: Resolved
    given_name: str

    @property
    def options(self) -> dict[str, Any]:
        """The environment's options that were given; its own defaults are left to it."""
        return self.resolved.given["env"]


@dataclass(frozen=True, slots=True)
class EnvironmentCommands:
    """What an entry point of group `atropos.commands` may name besides a typer.Typer: a command per environment.

        command = EnvironmentCommands("env-check", CheckOptions, check, "Check an environment.")

    section: of the configuration. action(chosen, *, options, ...) -> exit code: `chosen` is a ChosenEnvironment,
    `options` a model of the class given here, and other parameters are those of typer. The options of the
    environment are flags of the command as well.
    """

    section: str
    options: type[CommandOptions]
    action: Callable[..., int | None]
    help: str

    def __call__(self) -> None:
        """Commands are callable."""
        raise TypeError("EnvironmentCommands are not called; they are an entry point of atropos.commands")
