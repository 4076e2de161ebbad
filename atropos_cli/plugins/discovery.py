"""Find the installed plugins and what each offers, without importing them into this process.

    registry = load_registry()                # reads the environment variables itself
    registry = get_registry()                 # the same, once per process

A manifest is the module that an entry point of group `atropos` names. Its registration hooks say
what the plugin offers. `manifests` reads it in a child process; here a plugin is imported when something
of it is used: a component by name, or a hook that a run, an analysis or the doctor calls. A plugin that
fails, hangs or ends its process is kept as a PluginFailure and does not stop others.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping
from importlib import metadata

import atropos_cli
from atropos_cli.errors import PluginError
from atropos_cli.plugins import entrypoints
from atropos_cli.plugins.commands import command_clashes, command_entry_points, load_command
from atropos_cli.plugins.entrypoints import PLUGIN_GROUP, Entry
from atropos_cli.plugins.loader import Loader
from atropos_cli.plugins.manifests import read_manifests
from atropos_cli.plugins.registry import Registry

__all__ = [
    "command_clashes",
    "command_entry_points",
    "get_registry",
    "load_command",
    "load_registry",
    "reset_registry",
]

STRICT_VARIABLE = "ATROPOS_STRICT_PLUGINS"
_BUILTIN_DIST = "atropos-cli"
_BUILTIN_MODULE = "atropos_cli.builtin"


def load_registry(
    *,
    strict: bool = False,
    disabled: Collection[str] | None = None,
    environ: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> Registry:
    """The built-in components, and what the manifests of all installed plugins register.

    disabled: entry-point or distribution names to leave out ("all": every one but the built-in);
    default: ATROPOS_DISABLE_PLUGINS, separated by commas. strict: raise PluginError at the first failure.
    fresh: read every manifest now, whatever is known of it from earlier.
    """
    names = entrypoints.disabled_names(disabled, os.environ if environ is None else environ)
    loader = Loader(strict=strict)
    # The built-in components are there even when the record of the distribution is not (a bare checkout).
    loader.load(_builtin())
    entries, damaged = entrypoints.scan()
    plugins = [entry for entry in entries if entry.point.group == PLUGIN_GROUP and not _is_builtin(entry)]
    wanted = [entry for entry in plugins if not entrypoints.is_disabled(entry, names)]
    manifests, from_cache = read_manifests(wanted, fresh=fresh)
    read = iter(manifests)
    for entry in plugins:
        if entrypoints.is_disabled(entry, names):
            loader.leave_out(entry)
        else:
            loader.add(entry, next(read))
    for record in damaged:
        loader.unreadable(record)
    again = functools.partial(load_registry, disabled=names, fresh=True) if from_cache else None
    return loader.registry(again)


@functools.lru_cache(maxsize=1)
def _shared_registry(fresh: bool) -> Registry:
    return load_registry(fresh=fresh)


def get_registry(*, strict: bool | None = None, fresh: bool = False) -> Registry:
    """The registry of this process, loaded once. strict None: as ATROPOS_STRICT_PLUGINS says (1, true, yes or on).

    fresh: to diagnose problems, see load_registry. Raises PluginError when strict and a plugin failed.
    """
    registry = _shared_registry(fresh)
    if strict is None:
        strict = os.environ.get(STRICT_VARIABLE, "").strip().lower() in {"1", "true", "yes", "on"}
    if strict and registry.failures:
        failure = registry.failures[0]
        raise PluginError(failure.message, hint=failure.hint)
    return registry


def reset_registry() -> None:
    """Forget the registry of this process (for tests, and after an installation)."""
    _shared_registry.cache_clear()


def _builtin() -> Entry:
    point = metadata.EntryPoint("builtin", _BUILTIN_MODULE, PLUGIN_GROUP)
    return Entry(point, _BUILTIN_DIST, atropos_cli.__version__)


def _is_builtin(entry: Entry) -> bool:
    return entry.point.value == _BUILTIN_MODULE and entrypoints.normalized(entry.dist) == _BUILTIN_DIST
