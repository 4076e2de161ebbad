"""Words of a command line -> what they ask for, in this process and by the same functions that carry it out.

parsed(words)      the command, its options read by its own parser; nothing runs
planned(words)     the plan of the run that they would make; None for a command that makes none
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from atropos_cli.cli import habits
from atropos_cli.console.session import Session
from atropos_cli.errors import AtroposError, UsageError
from atropos_cli.jobs.order import PlannedRun, is_planner
from atropos_cli.redaction import looks_secret, names_a_secret

_SET_BY_COMMANDS = ("WORLD_SIZE",)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line that was parsed by the command itself."""

    command: Any
    context: Any
    session: Session

    def value(self, option: str) -> Any:
        """What an option was given, by its long name; None for one that was not given, or that there is none of."""
        for param in self.command.params:
            if option in param.opts:
                source = self.context.get_parameter_source(param.name)
                return self.context.params.get(param.name) if source is not None and source.name != "DEFAULT" else None
        return None

    def planned(self, *, check: bool = True) -> PlannedRun | None:
        """Run the command up to its plan. Raises AtroposError where it cannot run as it is.

        check False: what is wrong beside the plan (data that is not there yet) does not matter.
        """
        if not is_planner(self.command.callback):
            return None
        taken: list[PlannedRun] = []
        self.session.take = taken.append
        with self.context:
            try:
                self.command.invoke(self.context)
            except AtroposError:
                if check or not taken:
                    raise
        return taken[0] if taken else None


def parsed(words: Sequence[str]) -> CommandLine:
    """Parse the words of a command without running it. Raises UsageError and ConfigError as the command would."""
    from atropos_cli.cli.app import root_group

    session = Session(words)
    command, name, rest = root_group(), "atropos", list(words)
    context = command.make_context(name, [*rest], obj=session, resilient_parsing=True)
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, rest)
        group = hasattr(command, "resolve_command")
        context = command.make_context(name, [*rest], parent=context, resilient_parsing=group)
    return CommandLine(command, context, session)


def planned(words: Sequence[str], env: Mapping[str, str], cwd: Path, *, check: bool = True) -> PlannedRun | None:
    """The plan of the run that a command would make; None for a command without.

    It is resolved as in a working directory and with more variables. Secrets that the command takes from files become
    variables of this process, which a job inherits.
    """
    with _place(env, cwd):
        return parsed(words).planned(check=check)


@contextlib.contextmanager
def _place(env: Mapping[str, str], cwd: Path) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in (*env, *_SET_BY_COMMANDS)}
    old = Path.cwd()
    os.environ.update(env)
    try:
        if cwd != old:
            os.chdir(cwd)
        yield
    finally:
        if Path.cwd() != old:
            os.chdir(old)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def first_mistake(words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """What is wrong with a command line, in one line; None when it can be parsed."""
    from atropos_cli.cli.failure import explained

    try:
        with _place(env, Path.cwd()):
            parsed(words)
    except typer.Exit:
        return "its arguments ask for help only"
    except Exception as error:  # noqa: BLE001 (the parser's errors have no common public class)
        message, hint = explained(error)
        return message + (f" ({hint})" if hint else "")
    return None


def all_commands() -> list[str]:
    """The names of all commands, those of plugins last."""
    from atropos_cli.cli.app import COMMANDS
    from atropos_cli.cli.lazy import below, plugin_commands

    return list(dict.fromkeys((*below(COMMANDS, ""), *below(plugin_commands(COMMANDS), ""))))


def check_known(name: str) -> None:
    """Raises UsageError with what to type instead when there is no command of this name."""
    known = all_commands()
    if name not in known:
        words = habits.command_words("atropos", name)
        hint = None if words is None else f"atropos {' '.join(words)}"
        if words is None and "." not in name:  # job.sh is a file, and no slip of the pen for job
            hint = habits.next_step("atropos", name, known)
        general = "what is given here is a command of atropos: gen ENV, train grpo, ... (atropos --help)"
        raise UsageError(f"atropos has no command {name!r}", hint=hint or general)


def frozen_config(given: Path | None) -> dict[str, Any]:
    """The configuration files that apply now as one tree, later ones over earlier ones, without secrets.

    A command that was resolved has its secrets in variables by then. Never empty: an empty file is refused.
    """
    from atropos_cli.config.sources import explicit_file, load_files

    tree: dict[str, Any] = {"slurm": {}}
    for _, file in load_files(explicit_file(given)):
        _merge(tree, file.tree)
    return tree


def _merge(into: dict[str, Any], tree: Mapping[str, Any]) -> None:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            inner = into.get(key)
            into[key] = inner = dict(inner) if isinstance(inner, dict) else {}
            _merge(inner, value)
        elif not (isinstance(value, str) and (names_a_secret(key) or looks_secret(value))):
            into[key] = value
