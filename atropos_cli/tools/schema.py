"""The tool that a Python function is: its schema from signature and docstring, its arguments checked by both.

def convert(amount: float, to: Literal["EUR", "USD"] = "EUR") -> float:
    \"\"\"Convert an amount of money.

    amount: in the other currency
    \"\"\"
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, create_model

from atropos_cli.domain.base import JsonDict
from atropos_cli.errors import PluginError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_HEADER = re.compile(r"\s*(?:args|arguments|parameters|returns?|raises|yields|examples?)\s*:\s*$|\s*:\w", re.IGNORECASE)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call. arguments: the model of its parameters."""

    name: str
    function: Callable[..., Any]
    arguments: type[BaseModel]
    schema: JsonDict

    def bind(self, given: JsonDict) -> dict[str, Any]:
        """The arguments as the function takes them. Raises ValidationError."""
        checked = self.arguments.model_validate(given)
        return {name: getattr(checked, name) for name in checked.model_fields_set}


def tool_of(function: Callable[..., Any]) -> Tool:
    """The tool. Raises PluginError for a function that cannot be one."""
    name = getattr(function, "__name__", "")
    if not _NAME.fullmatch(name):
        raise PluginError(f"a tool needs a name, and {function!r} has none", hint="use a function made with def")
    description, words = _read_docstring(inspect.getdoc(function) or "", tuple(inspect.signature(function).parameters))
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise PluginError(
            f"the types of tool {name!r} are not known: {error}", hint="import or define them at the top of its module"
        ) from error
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _VARIADIC:
            raise PluginError(f"tool {name!r} takes {parameter}, which has no schema", hint="name each parameter")
        default = ... if parameter.default is parameter.empty else parameter.default
        about = Field(default, description=words.get(parameter.name))
        fields[parameter.name] = (hints.get(parameter.name, Any), about)
    try:
        model = create_model(name, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields)
        parameters = _plain(model.model_json_schema())
    except (PydanticUserError, NameError) as error:
        raise PluginError(f"a parameter of tool {name!r} has no schema: {str(error).splitlines()[0]}") from error
    parameters = {"type": "object", "properties": {}, **parameters}
    parameters.pop("description", None)
    function_schema = {"name": name, "description": description, "parameters": parameters}
    return Tool(name, function, model, {"type": "function", "function": function_schema})


def tools_of(source: Any) -> tuple[Tool, ...]:
    """The tools of a list of functions, or of an object: its public methods but close(). Raises PluginError."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        functions = list(source)
    else:
        names = [name for name in vars(type(source)) if not name.startswith("_") and name != "close"]
        functions = [method for name in names if inspect.isroutine(method := getattr(source, name))]
    tools = tuple(tool if isinstance(tool, Tool) else tool_of(tool) for tool in functions)
    names = [tool.name for tool in tools]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise PluginError(f"two tools have the name {doubled[0]!r}", hint="rename one of the functions")
    return tools


def _plain(schema: Any) -> Any:
    """The schema without the titles that pydantic makes of names."""
    if isinstance(schema, dict):
        return {
            key: {name: _plain(one) for name, one in value.items()} if key in ("properties", "$defs") else _plain(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
    return [_plain(item) for item in schema] if isinstance(schema, list) else schema


def _read_docstring(text: str, parameters: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The description, and what is said of each parameter, as `name: text`, `name (type): text` or `:param name:`."""
    about: dict[str, str] = {}
    names = "|".join(map(re.escape, parameters))
    line_of = re.compile(rf"\s*(?::param\s+(?:\w+\s+)?)?({names})\s*(?:\([^)]*\))?\s*:\s*(.*)") if names else None
    description: list[str] = []
    current: str | None = None
    before = True
    for line in text.splitlines():
        match = line_of.match(line) if line_of is not None else None
        if match is not None:
            before, current = False, match[1]
            about[current] = match[2].strip()
        elif _HEADER.match(line):
            before, current = False, None
        elif current is not None and line.strip():
            about[current] = f"{about[current]} {line.strip()}".strip()
        elif before:
            description.append(line)
        else:
            current = None
    return " ".join(" ".join(description).split()), about
