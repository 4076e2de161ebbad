"""Is this object really an environment, a reward, ...? Used when a hook returns one and when one is loaded."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atropos_cli.errors import PluginError
from atropos_cli.plugins.errortext import bare_signature, found
from atropos_cli.plugins.spec import ComponentSpec, Kind

# Modules are named, not imported: reading the manifests of plugins must not cost an import of pydantic.
_PORTS: dict[Kind, tuple[str, str]] = {
    "environment": ("atropos_cli.ports.environment", "Environment"),
    "reward": ("atropos_cli.ports.reward", "Reward"),
    "backend": ("atropos_cli.ports.backend", "InferenceBackend"),
    "trainer": ("atropos_cli.ports.trainer", "Trainer"),
    "launcher": ("atropos_cli.ports.launcher", "Launcher"),
    "writer": ("atropos_cli.ports.writer", "Writer"),
    "tracker": ("atropos_cli.ports.tracker", "Tracker"),
    "toolset": ("atropos_cli.ports.toolsource", "ToolSource"),
}

NAME_RULE = "letters, digits, '.', '_' and '-', beginning with a letter or digit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")


def port_type(kind: Kind) -> type:
    """The class that a component of that kind derives from (for a reward: is an instance of)."""
    module, attr = _PORTS[kind]
    port: type = getattr(importlib.import_module(module), attr)
    return port


def is_component(kind: Kind, value: Any) -> bool:
    """True for a proper subclass of the kind's port, a Reward object, or the path of a template folder."""
    if kind == "template":
        return isinstance(value, Path)
    port = port_type(kind)
    if kind == "reward":
        return isinstance(value, port)
    return isinstance(value, type) and issubclass(value, port) and value is not port


def check_component(kind: Kind, name: str, component: Any, *, origin: str) -> Any:
    """The component, if it can be used as one. Raises PluginError naming its origin and what was found."""
    if not is_component(kind, component):
        raise PluginError(
            f"{kind} {name!r} of {origin} is not {_expected(kind)}: found {found(component)}",
            hint=_type_hint(kind, component),
        )
    if kind == "template":
        if not component.is_dir():
            raise PluginError(f"template {name!r} of {origin}: there is no folder {component}")
        return component
    if inspect.isabstract(component):
        missing = sorted(component.__abstractmethods__)
        methods = ", ".join(f"{method}()" for method in missing)
        raise PluginError(
            f"{kind} {name!r} of {origin}: class {component.__name__} does not define {methods}",
            hint=f"def {missing[0]}{bare_signature(getattr(component, missing[0]))}: ...",
        )
    if not isinstance(getattr(component, "name", None), str) or not component.name:
        raise PluginError(
            f"{kind} {name!r} of {origin}: class {component.__name__} has no name",
            hint=f"add name = {_suggested_name(name, component)!r} to the class",
        )
    if kind == "launcher":
        _check_launcher(name, component, origin)
    for message, hint in _problems(kind, component):
        raise PluginError(f"{kind} {name!r} of {origin}: {message}", hint=hint)
    return component


def _problems(kind: Kind, component: Any) -> Iterator[tuple[str, str | None]]:
    from atropos_cli.plugins import shapes

    if kind == "reward":
        yield from shapes.reward_problems(component)
        return
    yield from shapes.config_problems(component)
    if kind in ("environment", "launcher"):
        yield from shapes.constructor_problems(component)
    if kind == "environment":
        yield from shapes.environment_problems(component)


def _check_launcher(name: str, component: Any, origin: str) -> None:
    """Its capabilities are what the commands go by."""
    able = component.capabilities
    if type(able).__name__ != "LauncherCapabilities":
        raise PluginError(
            f"launcher {name!r} of {origin}: capabilities of {component.__name__} are not LauncherCapabilities: "
            f"found {found(able)}",
            hint="capabilities = LauncherCapabilities(shards=True), from atropos_cli.sdk.launchers",
        )
    if not (able.submit or able.shards):
        raise PluginError(
            f"launcher {name!r} of {origin}: {component.__name__} can neither submit jobs nor run shards",
            hint="let its capabilities say submit=True or shards=True",
        )


def to_spec(kind: Kind, item: Any) -> ComponentSpec:
    """A hook's item as a ComponentSpec. Raises TypeError or ValueError with a message that names the item."""
    if isinstance(item, ComponentSpec):
        spec = item
        if spec.kind != kind:
            raise ValueError(f"{spec.kind} {spec.name!r} was returned by the hook for {kind}s")
    elif kind != "template" and is_component(kind, item):
        name = getattr(item, "name", None)
        if not isinstance(name, str):
            raise ValueError(f"class {item.__name__} has no name")
        spec = ComponentSpec(kind, name, item, summary=_summary(item))
    else:
        expected = "a ComponentSpec" if kind == "template" else f"a ComponentSpec or {_expected(kind)}"
        raise TypeError(f"expected {expected}, got {found(item)}")
    if not isinstance(spec.name, str) or not _NAME.match(spec.name):
        raise ValueError(f"{kind} name {spec.name!r} is not allowed: use {NAME_RULE}")
    if kind == "template":
        if not isinstance(spec.target, str | Path):
            raise TypeError(f"template {spec.name!r}: the target must be a folder, got {found(spec.target)}")
    elif isinstance(spec.target, str) and not _TARGET.match(spec.target):
        raise ValueError(f"{kind} {spec.name!r}: target {spec.target!r} is not of the form 'module:attr'")
    return spec


def _expected(kind: Kind) -> str:
    if kind == "reward":
        return "a Reward object"
    if kind == "template":
        return "a folder"
    return f"a subclass of {_PORTS[kind][1]}"


def _type_hint(kind: Kind, component: Any) -> str | None:
    if kind == "reward" and inspect.isroutine(component):
        return "decorate the function with @reward from atropos_cli.sdk"
    if kind in _PORTS and kind != "reward" and isinstance(component, port_type(kind)):
        return "name the class, not an object made from it"
    return None


def _suggested_name(name: str, component: type) -> str:
    return name if _NAME.match(name) else component.__name__.lower()


def _summary(item: Any) -> str:
    # A class without a docstring of its own must not show its base's.
    text = item.__doc__ if isinstance(item, type) else getattr(item, "summary", "")
    return inspect.cleandoc(text or "").split("\n", 1)[0]
