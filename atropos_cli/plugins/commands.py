"""Extra commands of plugins: entry points of group `atropos.commands`, found without importing them.

The entry point's name is the command's name, or, with a dot, that of a command in a group: `env.check` is
`atropos env check`. Its value is the "module:attr" of a typer.Typer or a
function. `atropos --help` imports this module, so it imports next to nothing itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from atropos_cli.errors import ComponentClash, ComponentNotFound, PluginError
from atropos_cli.plugins import entrypoints
from atropos_cli.plugins.entrypoints import COMMAND_GROUP, DISABLE_VARIABLE, Entry

NO_COMMANDS: Mapping[str, str] = {}
Offered = Mapping[str, list[Entry]]


def command_entry_points(
    environ: Mapping[str, str] | None = None,
    *,
    built_in: Mapping[str, str] = NO_COMMANDS,
    offered: Offered | None = None,
) -> dict[str, tuple[str, metadata.EntryPoint]]:
    """Extra commands by name: (distribution, entry point). Imports nothing.

    built_in: names of our own commands, and the distribution that brings each ("" for the core). A name that two
    distributions offer, or that is another's, is not there; its full name "dist/name" is (see command_clashes).
    offered: what `offered_commands` gave, where that was asked before.
    """
    commands: dict[str, tuple[str, metadata.EntryPoint]] = {}
    for name, entries in (offered_commands(environ) if offered is None else offered).items():
        for entry in entries:
            owner = built_in.get(name)
            plain = len(entries) == 1 if owner is None else owner == entrypoints.normalized(entry.dist)
            commands[name if plain else full_name(entry.dist, name)] = (entry.dist, entry.point)
    return commands


def words_of(name: str) -> str:
    """The name of a command as it is typed: "env check" for an entry point "env.check"."""
    return name.replace(".", " ")


def full_name(dist: str, name: str) -> str:
    """The name with its distribution, in its group: "env some-dist/check"."""
    group, space, last = name.rpartition(" ")
    return f"{group}{space}{dist}/{last}"


def command_clashes(environ: Mapping[str, str] | None = None) -> dict[str, tuple[str, ...]]:
    """Command names that more than one distribution offers, with the full names that work."""
    return {
        name: tuple(full_name(entry.dist, name) for entry in entries)
        for name, entries in offered_commands(environ).items()
        if len(entries) > 1
    }


def load_command(
    name: str,
    environ: Mapping[str, str] | None = None,
    *,
    built_in: Mapping[str, str] = NO_COMMANDS,
    offered: Offered | None = None,
) -> Any:
    """Import an extra command: a typer.Typer or a function. Raises PluginError naming its distribution."""
    from atropos_cli.plugins.errortext import describe_error, found
    from atropos_cli.streams import stdout_to_stderr

    known = command_entry_points(environ, built_in=built_in, offered=offered)
    if name not in known:
        full_names = command_clashes(environ).get(name)
        if full_names:
            raise ComponentClash(
                f"command {name!r} is offered by {len(full_names)} distributions", hint="use " + " or ".join(full_names)
            )
        raise ComponentNotFound(f"no plugin offers a command {name!r}", hint="atropos plugins list")
    dist, point = known[name]
    try:
        with stdout_to_stderr():
            command = point.load()
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"command {name!r} of {dist} cannot be loaded from {point.value}: {describe_error(error)}",
            hint=f"pip install --upgrade {dist}, or run without it: {DISABLE_VARIABLE}={dist}",
        ) from error
    if not callable(command):
        raise PluginError(f"command {name!r} of {dist} is neither a typer.Typer nor a function: {found(command)}")
    return command


def offered_commands(environ: Mapping[str, str] | None = None) -> dict[str, list[Entry]]:
    """What plugins call their commands, whether or not they run under these names."""
    names = entrypoints.disabled_names(None, os.environ if environ is None else environ)
    commands: dict[str, list[Entry]] = {}
    for entry in entrypoints.scan()[0]:
        if entry.point.group == COMMAND_GROUP and not entrypoints.is_disabled(entry, names):
            commands.setdefault(words_of(entry.name), []).append(entry)
    return commands
