"""The tool that a Python function is: its schema from signature and docstring, its arguments checked by both.

def convert(amount: float, to: Literal["EUR", "USD"] = "EUR") -> float:
    \"\"\"Convert an amount of money.

    amount: in the other currency
    \"\"\"
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import SchemaError

from atropos_cli.domain.base import JsonDict
from atropos_cli.errors import PluginError
from atropos_cli.plugins.errortext import found

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_HEADER = re.compile(r"\s*(?:args|arguments|parameters|returns?|raises|yields|examples?)\s*:\s*$|\s*:\w", re.IGNORECASE)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


# By function and "is it a method?": each episode has the same tools, and a schema takes a millisecond. Without the
# function itself, which would then never be forgotten.
_known: WeakKeyDictionary[FunctionType, dict[bool, tuple[str, type[BaseModel], JsonDict]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call.

    arguments: the model of its parameters, which are aliases there: as fields, some names would mean something else.
    """

    name: str
    function: Callable[..., Any]
    arguments: type[BaseModel]
    schema: JsonDict

    def bind(self, given: JsonDict) -> dict[str, Any]:
        """The arguments as the function takes them. Raises ValidationError."""
        checked = self.arguments.model_validate(given)
        fields = self.arguments.model_fields
        return {str(fields[name].alias): getattr(checked, name) for name in fields if name in checked.model_fields_set}


def tool_of(function: Callable[..., Any]) -> Tool:
    """The tool. Raises PluginError for a function that cannot be one."""
    key = getattr(function, "__func__", function)
    if not isinstance(key, FunctionType):
        return _tool_of(function)
    known = _known.setdefault(key, {})
    bound = key is not function
    if bound not in known:
        tool = _tool_of(function)
        known[bound] = (tool.name, tool.arguments, tool.schema)
    name, arguments, schema = known[bound]
    return Tool(name, function, arguments, schema)


def _tool_of(function: Callable[..., Any]) -> Tool:
    name = getattr(function, "__name__", "")
    if not _NAME.fullmatch(name):
        raise PluginError(
            f"a tool needs a name of letters (a-z), digits and _, at most 64, and {function!r} has none",
            hint="use a function made with def",
        )
    if inspect.isasyncgenfunction(function):
        raise PluginError(f"tool {name!r} is an asynchronous generator", hint="return a list instead of yield")
    parameters = _parameters(name, function)
    description, words = _read_docstring(inspect.getdoc(function) or "", tuple(parameters))
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise PluginError(
            f"the types of tool {name!r} are not known: {error}", hint="import or define them at the top of its module"
        ) from error
    fields: dict[str, Any] = {}
    for place, (parameter, default) in enumerate(parameters.items()):
        about: dict[str, Any] = {"alias": parameter} | ({"description": words[parameter]} if parameter in words else {})
        fields[f"p{place}"] = (hints.get(parameter, Any), Field(default, **about))
    try:
        model = create_model(name, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields)
        schema = _plain(model.model_json_schema())
    except (PydanticUserError, SchemaError, NameError, TypeError) as error:
        raise PluginError(f"a parameter of tool {name!r} has no schema: {str(error).splitlines()[0]}") from error
    schema = {"type": "object", "properties": {}, **schema}
    schema.pop("description", None)
    function_schema = {"name": name, "description": description, "parameters": schema}
    return Tool(name, function, model, {"type": "function", "function": function_schema})


def _parameters(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The default of each parameter, ... where it has none. Raises PluginError for those that have no schema."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise PluginError(f"tool {name!r} has no signature", hint="wrap it in a function made with def") from error
    for parameter in parameters:
        if parameter.kind in _VARIADIC:
            raise PluginError(f"tool {name!r} takes {parameter}, which has no schema", hint="name each parameter")
        if isinstance(parameter.default, FieldInfo):
            raise PluginError(
                f"the default of parameter {parameter.name!r} of tool {name!r} is a Field",
                hint=f"{parameter.name}: Annotated[TYPE, Field(...)] = VALUE",
            )
    return {one.name: ... if one.default is one.empty else one.default for one in parameters}


def tools_of(source: Any) -> tuple[Tool, ...]:
    """The tools of a list of functions, or of an object: its public methods but close(). Raises PluginError.

    Methods that its class inherits count, but for those of the standard library and of pydantic.
    """
    functions = list(source) if isinstance(source, Sequence) and not isinstance(source, str) else _methods(source)
    tools = tuple(tool if isinstance(tool, Tool) else tool_of(tool) for tool in functions)
    names = [tool.name for tool in tools]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise PluginError(f"two tools have the name {doubled[0]!r}", hint="rename one of the functions")
    return tools


def _methods(source: Any) -> list[Callable[..., Any]]:
    kind = type(source)
    if isinstance(source, type) or kind.__module__ == "builtins":
        raise PluginError(
            f"tools are a list of functions or an object with methods, not {found(source)}",
            hint="tools = (function,), with the comma; or let toolbox(task) return such a list or object",
        )
    classes = [one for one in reversed(kind.__mro__) if one is kind or not _foreign(one.__module__)]
    names = dict.fromkeys(name for one in classes for name in vars(one) if not name.startswith("_") and name != "close")
    plain = [name for name in names if not isinstance(inspect.getattr_static(source, name, None), property)]
    functions: list[Callable[..., Any]] = [
        method for name in plain if inspect.isroutine(method := getattr(source, name, None))
    ]
    if not functions:
        raise PluginError(f"an object of class {kind.__name__} has no public methods that could be tools")
    return functions


def _foreign(module: str) -> bool:
    first = module.partition(".")[0]
    return first in sys.stdlib_module_names or first == "pydantic"


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
