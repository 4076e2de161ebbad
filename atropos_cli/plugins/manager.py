"""pluggy with one difference: a hook that is wrong is noted and left out, and its plugin's other hooks stay.

pluggy itself raises at the first unknown hook or argument of any plugin, which would let one
mistake hide the rest of the plugin, or another plugin.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pluggy

from atropos_cli.plugins import hookspecs
from atropos_cli.plugins.spec import KINDS, Kind

REGISTER_HOOKS: dict[str, Kind] = {f"atropos_register_{kind}s": kind for kind in KINDS}
OBSERVER_HOOKS = ("atropos_run_started", "atropos_group_scored", "atropos_run_finished")
HOOK_NAMES = (
    *REGISTER_HOOKS,
    *OBSERVER_HOOKS,
    "atropos_analyze",
    "atropos_open_model_file",
    "atropos_open_plan",
    "atropos_plan_servers",
    "atropos_submit_file",
    "atropos_share",
    "atropos_doctor",
)


class BadHook(Exception):
    """A function that was meant to be a hook and cannot be one."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Hook:
    """One valid hook of one plugin."""

    name: str
    implementation: pluggy.HookImpl

    def call(self, kwargs: Mapping[str, Any]) -> Any:
        """Call it with those of the arguments that it asks for."""
        return self.implementation.function(*(kwargs[name] for name in self.implementation.argnames))


class Manager(pluggy.PluginManager):
    """Registers plugins one by one and keeps what was wrong with each."""

    def __init__(self) -> None:
        super().__init__(hookspecs.PROJECT)
        self._bad: list[BadHook] = []
        self.add_hookspecs(hookspecs)

    def add(self, plugin: Any, name: str) -> tuple[list[Hook], list[BadHook]]:
        """Register a plugin; its valid hooks, and what is wrong with the others. Raises what pluggy raises."""
        self._bad = []
        self.register(plugin, name)
        hooks = [
            Hook(caller.name, implementation)
            for caller in self.get_hookcallers(plugin) or ()
            for implementation in caller.get_hookimpls()
            if implementation.plugin is plugin
        ]
        bad = self._bad
        if not hooks and not bad:
            bad = [_no_hooks(plugin)]
        return sorted(hooks, key=lambda hook: HOOK_NAMES.index(hook.name)), bad

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        """pluggy's question whether an attribute is a hook; answered with None for one that is wrong."""
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None:
            if name in HOOK_NAMES and inspect.isroutine(getattr(plugin, name)):
                self._bad.append(BadHook(f"{name} is not marked as a hook", "put @hookimpl above it"))
            return None
        try:
            _check_hook(getattr(plugin, name), options, options.get("specname") or name)
        except BadHook as error:
            self._bad.append(error)
            return None
        return options


def _check_hook(function: Any, options: pluggy.HookimplOpts, name: str) -> None:
    if name not in HOOK_NAMES:
        close = difflib.get_close_matches(name, HOOK_NAMES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"hooks: {', '.join(HOOK_NAMES)}"
        raise BadHook(f"there is no hook {name}", hint)
    if options.get("wrapper") or options.get("hookwrapper"):
        raise BadHook(f"{name} is a hook wrapper", "write @hookimpl without wrapper=True")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise BadHook(f"{name} is async", "write it as a plain function")
    known = list(inspect.signature(getattr(hookspecs, name)).parameters)
    unknown = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name not in known
    ]
    if unknown:
        offered = f"it may take: {', '.join(known)}" if known else "it takes no arguments"
        raise BadHook(f"{name} asks for an unknown argument {unknown[0]!r}", offered)


def _no_hooks(plugin: Any) -> BadHook:
    if isinstance(plugin, type):
        return BadHook(
            f"the entry point names class {plugin.__name__}, which has no hooks",
            "let it name a module that has a function such as atropos_register_environments, marked @hookimpl",
        )
    return BadHook("it has no hooks", "mark a function such as atropos_register_environments with @hookimpl")
