"""What one invocation of the program carries along: its output, its debug switch, its registry."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from atropos_cli.config.program import ProgramSettings
from atropos_cli.console.logs import output_level, set_level
from atropos_cli.console.output import QUIET, VERBOSE, Output

if TYPE_CHECKING:
    import typer

    from atropos_cli.io.parts import Part
    from atropos_cli.plugins.registry import Registry

_TRUE = {"1", "true", "yes", "on"}


def truthy(name: str) -> bool:
    """Is the environment variable set to 1, true, yes or on?"""
    return os.environ.get(name, "").strip().lower() in _TRUE


class Session:
    """One per call of main(); hangs on the context as `ctx.obj`.

    check_command: raises UsageError for the name of a command that atropos does not have.
    command: the command that was found in the words, such as "atropos job submit", for hints.
    part: the part of a command over stored rows that is made here, while other processes make the others.
    take: where the plan of a run goes when it is not to be carried out here; None: the command carries it out.
    """

    def __init__(self, args: Sequence[str] = ()) -> None:
        # These switches are wanted before the options of the innermost command are parsed, which may be made from
        # a plugin: so they are looked for here, wherever they stand.
        self.args = tuple(args)
        self.command = "atropos"
        words = args[: args.index("--")] if "--" in args else args
        self.debug = "--debug" in words or truthy("ATROPOS_DEBUG")
        self.strict = "--strict-plugins" in words or truthy("ATROPOS_STRICT_PLUGINS")
        self.out = Output(output_level(words))
        self.program = ProgramSettings()
        self.check_command: Callable[[str], None] = lambda name: None
        self.take: Callable[[Any], None] | None = None
        self.part: Part | None = None
        self._warned = self._fresh = False
        self._log_level: str | None = None

    def log_from(self, level: str | None) -> None:
        """--log-level, or what -q and -v mean for the logs of libraries."""
        self._log_level = level or self._log_level
        set_level(self._log_level, self.out.level)

    @property
    def registry(self) -> Registry:
        """The installed components. The first use warns of broken plugins, or fails with --strict-plugins."""
        from atropos_cli.plugins.discovery import get_registry

        registry = get_registry(strict=self.strict, fresh=self._fresh)
        if not self._warned:
            self._warned = True
            for failure in registry.failures:
                self.out.warning(failure.message, failure.hint)
                if self.debug and failure.traceback:
                    self.out.trace(failure.traceback)
        return registry

    @property
    def switches(self) -> list[str]:
        """The switches that another call of the program needs to speak like this one."""
        words = {"--debug": self.debug, "--strict-plugins": self.strict}
        words |= {"--quiet": self.out.level == QUIET, "--verbose": self.out.level == VERBOSE}
        level = [] if self._log_level is None else ["--log-level", self._log_level]
        return [*(word for word, given in words.items() if given), *level]

    def examine_plugins(self) -> None:
        """For commands that list broken plugins themselves: look at each anew, and warn of none."""
        self._warned = self._fresh = True


def session_of(ctx: typer.Context) -> Session:
    """The session of a command's context."""
    found = ctx.find_root().obj
    if not isinstance(found, Session):
        raise TypeError("the context carries no session: start commands through atropos_cli.cli.app.main")
    return found
