"""What a plugin says about each thing it offers, without importing it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Literal

from atropos_cli.errors import PluginError

Kind = Literal["environment", "reward", "backend", "trainer", "launcher", "writer", "template"]
KINDS: tuple[Kind, ...] = ("environment", "reward", "backend", "trainer", "launcher", "writer", "template")


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """A component by name. `target` is "module:attr" (imported on first use) or the object itself.

    summary: one line for lists, readable without importing the target.
    requires: distributions the target needs; a missing one gives `hint: pip install ...`.
    extra: the extra of the plugin's distribution that brings them, if there is one.
    aliases: backends only: model names this backend answers to ("smollm2").
    """

    kind: Kind
    name: str
    target: Any
    summary: str = ""
    requires: tuple[str, ...] = ()
    extra: str | None = None
    aliases: tuple[str, ...] = field(default=())

    def load(self, *, dist: str | None = None) -> Any:
        """Import and return the component. Raises PluginError with a hint when that fails."""
        if not isinstance(self.target, str):
            return self.target
        module_name, _, attr = self.target.partition(":")
        if not attr:
            raise PluginError(f"{self.kind} {self.name!r}: target {self.target!r} is not of the form 'module:attr'")
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            raise PluginError(
                f"{self.kind} {self.name!r} cannot be imported from {module_name}: {type(error).__name__}: {error}",
                hint=self._install_hint(error, dist),
            ) from error
        try:
            return getattr(module, attr)
        except AttributeError as error:
            raise PluginError(f"{self.kind} {self.name!r}: module {module_name} has no {attr!r}") from error

    def _install_hint(self, error: Exception, dist: str | None) -> str | None:
        if not isinstance(error, ModuleNotFoundError):
            return None
        if self.extra and dist:
            return f"pip install '{dist}[{self.extra}]'"
        if self.requires:
            return "pip install " + " ".join(self.requires)
        return f"pip install {error.name}" if error.name else None
