"""Check decoded calls against the tools that were offered: problems of schema, not of syntax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
    "null": (type(None),),
}


def check_calls(
    calls: Sequence[tuple[str, Mapping[str, Any]]], tools: Sequence[Mapping[str, Any]] | None
) -> tuple[str, ...]:
    """The problems of (name, arguments) pairs, in order; none when no tools are given."""
    if tools is None:
        return ()
    offered = {name: tool for tool in tools if isinstance(name := _function(tool).get("name"), str)}
    problems: list[str] = []
    for name, arguments in calls:
        if name not in offered:
            problems.append(f"unknown_tool:{name}")
        else:
            problems.extend(_check(arguments, offered[name]))
    return tuple(problems)


def tool_names(tools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names of the tools."""
    return tuple(name for tool in tools if isinstance(name := _function(tool).get("name"), str))


def parameter_names(tools: Sequence[Mapping[str, Any]] | None, name: str) -> tuple[str, ...] | None:
    """The parameter names of a tool in their order, or None when the tool is not known."""
    for tool in tools or ():
        if _function(tool).get("name") == name:
            return tuple(_properties(tool))
    return None


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = tool.get("function")
    return inner if isinstance(inner, Mapping) else tool


def _schema(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = _function(tool)
    schema = function.get("parameters", function)
    return schema if isinstance(schema, Mapping) else {}


def _properties(tool: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    given = _schema(tool).get("properties") or {}
    if isinstance(given, Mapping):
        return {str(key): value if isinstance(value, Mapping) else {} for key, value in given.items()}
    return {str(key): {} for key in given}


def _check(arguments: Mapping[str, Any], tool: Mapping[str, Any]) -> list[str]:
    schema, properties = _schema(tool), _properties(tool)
    required = schema.get("required") or ()
    problems = [f"missing:{name}" for name in required if name not in arguments]
    for name, value in arguments.items():
        if name not in properties:
            if not schema.get("additionalProperties"):
                problems.append(f"unexpected:{name}")
            continue
        allowed = properties[name].get("type")
        if allowed is not None and not _has_type(value, allowed):
            problems.append(f"wrong_type:{name}")
        elif isinstance(choices := properties[name].get("enum"), list | tuple) and value not in choices:
            problems.append(f"not_in_enum:{name}")
    return problems


def _has_type(value: Any, allowed: Any) -> bool:
    names = [allowed] if isinstance(allowed, str) else allowed if isinstance(allowed, list | tuple) else []
    if not names or any(name not in _TYPES for name in names):
        return True  # a type this check does not know is no reason to complain
    for name in names:
        if isinstance(value, bool):
            if name == "boolean":
                return True
        elif isinstance(value, _TYPES[name]) or (name == "integer" and isinstance(value, float) and value.is_integer()):
            return True
    return False
