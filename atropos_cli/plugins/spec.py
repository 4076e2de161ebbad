"""What a plugin says about each thing it offers, without importing it."""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from atropos_cli.domain.methods import Method
from atropos_cli.errors import PluginError
from atropos_cli.plugins.errortext import describe_error
from atropos_cli.streams import stdout_to_stderr

Kind = Literal["environment", "reward", "backend", "trainer", "launcher", "writer", "tracker", "toolset", "template"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Deferred:
    """A target that only the plugin's manifest has: resolve() imports the manifest and gives it."""

    resolve: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """A component by name. `target` is "module:attr" (imported on first use) or the object itself.

    summary: one line for lists, readable without importing the target.
    requires: distributions the target needs; a missing one gives `hint: pip install ...`.
    extra: the extra of the plugin's distribution that brings them, if there is one.
    aliases: backends only: model names this backend answers to ("smollm2").
    methods: trainers only: their methods, so that `atropos train --help` lists it without an import.
    family: environments only: the name is a prefix, and the target gives the class for what follows it in NAME:REST.
    """

    kind: Kind
    name: str
    target: Any
    summary: str = ""
    requires: tuple[str, ...] = ()
    extra: str | None = None
    aliases: tuple[str, ...] = field(default=())
    family: bool = False
    methods: tuple[Method, ...] = field(default=())

    def load(self, *, dist: str | None = None) -> Any:
        """Import and return the component. Raises PluginError with a hint when that fails."""
        if isinstance(self.target, Deferred):
            return self.target.resolve()
        if not isinstance(self.target, str):
            return self.target
        module_name, _, attr = self.target.partition(":")
        if not attr:
            raise PluginError(f"{self.kind} {self.name!r}: target {self.target!r} is not of the form 'module:attr'")
        try:
            with stdout_to_stderr():
                module = importlib.import_module(module_name)
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"{self.kind} {self.name!r} cannot be imported from {module_name}: {describe_error(error)}",
                hint=self._install_hint(error, module_name, dist),
            ) from error
        try:
            return functools.reduce(getattr, attr.split("."), module)
        except AttributeError as error:
            close = difflib.get_close_matches(attr, dir(module), n=1)
            raise PluginError(
                f"{self.kind} {self.name!r}: module {module_name} has no {attr!r}",
                hint=f"it has {close[0]!r}" if close else None,
            ) from error

    def _install_hint(self, error: BaseException, module_name: str, dist: str | None) -> str | None:
        if not isinstance(error, ModuleNotFoundError) or not error.name:
            return None
        if module_name == error.name or module_name.startswith(error.name + "."):
            # The plugin's own module is gone: installing something of that name would be wrong.
            return f"pip install --force-reinstall {dist}" if dist else None
        if self.extra and dist:
            return f"pip install '{dist}[{self.extra}]'"
        if self.requires:
            return "pip install " + " ".join(self.requires)
        return f"pip install {error.name.partition('.')[0]}"
