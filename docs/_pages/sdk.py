"""The names that plugin authors import."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from _pages.markdown import code, doc_of, page, signature
from atropos_cli import sdk

INTRO = """\
Plugins import `atropos_cli.sdk` and its modules. Their names are public and kept stable: one that goes away is
announced in the change log and kept for a minor version. Everything else in the package may change at any time.
What the tests of plugins need is in the package `atropos_authoring` (`pip install atropos-authoring`)."""


def pages() -> Iterator[tuple[str, str]]:
    """reference/sdk.md."""
    yield "sdk.md", page("The SDK", INTRO, *map(_section, modules()))


def modules() -> list[ModuleType]:
    """The package, then its modules by name."""
    names = sorted(item.name for item in pkgutil.iter_modules(sdk.__path__))
    return [sdk, *(import_module(f"{sdk.__name__}.{name}") for name in names)]


def _section(module: ModuleType) -> str:
    summary = (module.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    entries = [_entry(name, getattr(module, name)) for name in module.__all__]
    return "\n\n".join([f"## {module.__name__}", summary, *entries])


def _entry(name: str, value: Any) -> str:
    if not getattr(value, "__module__", "").startswith("atropos_cli."):
        return f"### {name}\n\n{OTHERS.get(name) or _plain(value)}"
    if not isinstance(value, type):
        doc = doc_of(value, inspect.signature(value).parameters)
        return "\n\n".join([f"### {name}", code(f"{name}{signature(value)}", "python"), doc])
    fields = [*getattr(value, "model_fields", getattr(value, "__dataclass_fields__", ()))]
    parts = [f"### {name}", doc_of(value, fields)]
    if issubclass(value, BaseException):
        return parts[0] + "\n\n" + (parts[1] or f"A kind of `{value.__mro__[1].__name__}`.") + _code_of(value)
    if fields:
        parts.append("Fields: " + ", ".join(f"`{field}`" for field in fields) + ".")
    methods = [_method(key, member) for key, member in vars(value).items() if _is_public(key, member)]
    if methods:
        parts.append("\n".join(methods))
    return "\n\n".join(part for part in parts if part)


def _plain(value: Any) -> str:
    """A constant, or an option in the form that typer reads."""
    for shown in getattr(value, "__metadata__", ()):
        return f"A parameter of a command: {shown.help}"
    if isinstance(value, str | int | float | tuple):
        return f"`{value!r}`."
    raise SystemExit(f"docs/_pages/sdk.py does not say what {value!r} is")


OTHERS = {
    "Field": "`pydantic.Field`: the default, range and description of an option.",
    "SecretStr": "`pydantic.SecretStr`: an option that is never shown, and never written into a plan.",
    "Data": "`dict[str, Any]`: a JSON object of a foreign process.",
    "JsonDict": "`dict[str, JsonValue]`: a JSON object.",
    "ToolFormat": "Formats of `parse_tool_calls`: `auto` (all in turn), `hermes`, `json`, `openai`, `python`, `react`.",
    "PROMPT_PARTS": "Names of the fields of a row that may hold a part of its prompt.",
    "Cell": "`str | int | float | None`: a cell of an `AnalysisTable`.",
    "FORMAT": "The field `format` of a `CommandOptions` model, for a command that reads rows.",
    "FORMATS": "The formats of stored rollouts, by name.",
    "StoredMessage": "`dict[str, Any]`: a message in the shape of OpenAI's interface, as `Record` has it.",
    "SAMPLE_COLUMNS": "Names of the columns of the sample rollouts that a `Tracker` is given, in the order of a table.",
    "Begin": "How a folder that holds a run is treated: `new` (an error), `resume` or `overwrite`: a `Literal`.",
    "Play": "`play(plan, tasks) -> groups`: plays the tasks of a suite by place, for `TrainContext.evaluate`.",
    "METHODS": "The methods that several trainers have, by name: a mapping of `Method`.",
    "Learns": "What a method learns from: groups, demonstrations, pairs, labelled; a `Literal`.",
    "Rule": "A rule that watches a training: non-finite, zero-std, truncated, kl, entropy, plateau; a `Literal`.",
    "OnFailure": "A function told of each failed rollout: place, task, failure, and the rollout's id or None.",
    "ROLES": "The roles that a message may have.",
    "StopReason": "How a rollout ended: done, step_limit, length, context_length, content_filter, incomplete.",
    "Engine": "The engine of a server: `sglang` or `vllm`.",
    "JobState": "One of pending, running, finished, failed, cancelled, unknown: a `Literal`.",
    "Level": "How a process is shut in: namespaces, bubblewrap or process; a `Literal`.",
    "hookimpl": "Marks a function as the implementation of [a hook](hooks.md).",
}


def _code_of(error: type[BaseException]) -> str:
    code = getattr(error, "exit_code", None)
    return f" Exit code {int(code)}." if code is not None else ""


def _is_public(name: str, member: Any) -> bool:
    kinds = (staticmethod, classmethod, property)
    return not name.startswith(("_", "model_")) and (inspect.isfunction(member) or isinstance(member, kinds))


def _method(name: str, member: Any) -> str:
    function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    doc = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    prefix = "async " if inspect.iscoroutinefunction(function) else ""
    shown = name if isinstance(member, property) else f"{prefix}{name}{signature(function)}"
    return f"- `{shown}`" + (f": {doc}" if doc else "")
