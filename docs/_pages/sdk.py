"""The names that plugin authors import."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from _pages.markdown import code, doc_of, page, signature

INTRO = """\
`atropos_cli.sdk` is the one module that plugins import. Its names are public and kept stable: one that goes away is
announced in the change log and kept for a minor version. Everything else in the package may change at any time,
except `atropos_cli.testing`, which holds what the tests of plugins need."""
TITLES = {
    "domain": "Data",
    "text": "Text of replies",
    "stats": "Statistics",
    "ports": "Interfaces",
    "plugins": "Registration",
    "io": "Files",
    "sdk": "Files",
    "isolation": "Isolated programs",
    "models": "Models on this machine",
    "redaction": "Secrets",
    "config": "Secrets",
    "paths": "Paths and streams",
    "streams": "Paths and streams",
    "network": "Network",
    "resources": "Templates",
    "errors": "Errors",
    "timelimit": "Errors",
    "pydantic": "From pydantic",
}


def pages() -> Iterator[tuple[str, str]]:
    """reference/sdk.md."""
    from atropos_cli import sdk

    sections: dict[str, list[str]] = {title: [] for title in TITLES.values()}
    for name in sdk.__all__:
        value = getattr(sdk, name)
        sections[TITLES[_origin(name, value)]].append(_entry(name, value))
    parts = [f"## {title}\n\n" + "\n\n".join(entries) for title, entries in sections.items() if entries]
    yield "sdk.md", page("The SDK", INTRO, *parts)


def _origin(name: str, value: Any) -> str:
    module = getattr(value, "__module__", "") or ""
    if name == "hookimpl":
        return "plugins"
    if not module.startswith("atropos_cli."):
        return "pydantic" if module.startswith("pydantic") else "domain"
    return module.split(".")[1]


def _entry(name: str, value: Any) -> str:
    if not getattr(value, "__module__", "").startswith("atropos_cli."):
        return f"### {name}\n\n{OTHERS[name]}"
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


OTHERS = {
    "Field": "`pydantic.Field`: the default, range and description of an option.",
    "SecretStr": "`pydantic.SecretStr`: an option that is never shown, and never written into a plan.",
    "JsonDict": "`dict[str, JsonValue]`: a JSON object.",
    "ToolFormat": 'The formats of `parse_tool_calls`: `"hermes"`, `"json"`, `"openai"`, `"python"`, `"react"`.',
    "PROMPT_PARTS": "Names of the fields of a row that may hold a part of its prompt.",
    "SAMPLE_COLUMNS": "Names of the columns of the sample rollouts that a `Tracker` is given, in the order of a table.",
    "StopReason": "How a rollout ended: done, step_limit, length, context_length, content_filter, incomplete.",
    "JobState": "One of pending, running, finished, failed, cancelled, unknown: a `Literal`.",
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
