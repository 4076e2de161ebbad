"""Read calls with literal arguments out of Python source. The source is parsed, never run."""

from __future__ import annotations

import ast
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atropos_cli.text.toolparsing.check import parameter_names
from atropos_cli.text.toolparsing.fault import CallFault

_MAX_SOURCE = 200_000
_MAX_DEPTH = 50
_MAX_INT_BITS = 14_000  # more digits than Python writes as text
_TOKEN = re.compile(
    r'#[^\n]*|"""(?:\\.|[^\\])*?"""'
    r"|'''(?:\\.|[^\\])*?'''"
    r'|"""|' + r"'''" + r'|"(?:\\.|[^"\\\n])*"' + r"|'(?:\\.|[^'\\\n])*'" + r"|[\"'()\[\]{}]",
    re.DOTALL,
)
_LONG_OPERATORS = re.compile(r"(?:[-+~]\s*){20}|(?:\bnot\s+){20}")
_PAIRS = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True, slots=True)
class PythonCall:
    """A call. mapped: positional arguments were named by the tool's parameters."""

    name: str
    arguments: dict[str, Any]
    mapped: bool = False


def python_calls(source: str, tools: Sequence[Mapping[str, Any]] | None = None) -> list[PythonCall]:
    """The calls that the statements of a block make, or those of its list displays. Raises CallFault."""
    _screen(source)
    try:
        module = ast.parse(textwrap.dedent(source).strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        raise CallFault("invalid_python") from None
    calls = []
    for statement in module.body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        nodes = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        for node in nodes:
            if not isinstance(node, ast.Call):
                raise CallFault("not_a_call")
            calls.append(_call(node, tools))
    return calls


def _screen(source: str) -> None:
    """Refuse what is cut off, or would be slow or deep for the parser."""
    if len(source) > _MAX_SOURCE:
        raise CallFault("too_long")
    open_brackets: list[str] = []
    for match in _TOKEN.finditer(source):
        mark = match[0]
        if mark in "([{":
            open_brackets.append(mark)
            if len(open_brackets) > _MAX_DEPTH:
                raise CallFault("too_deep")
        elif mark in _PAIRS:
            if not open_brackets or open_brackets.pop() != _PAIRS[mark]:
                raise CallFault("invalid_python")
        elif mark in ('"""', "'''"):
            raise CallFault("truncated")
        elif mark in "\"'":
            raise CallFault("invalid_python" if "\n" in source[match.end() :].strip() else "truncated")
    if open_brackets:
        raise CallFault("truncated")
    if _LONG_OPERATORS.search(source):
        raise CallFault("too_deep")


def _call(node: ast.Call, tools: Sequence[Mapping[str, Any]] | None) -> PythonCall:
    name = _dotted(node.func)
    positional = [_literal(argument) for argument in node.args]
    arguments: dict[str, Any] = {}
    names = parameter_names(tools, name)
    if positional and (names is None or len(positional) > len(names)):
        raise CallFault("positional_arguments")
    arguments.update(zip(names or (), positional, strict=False))
    for keyword in node.keywords:
        if keyword.arg is None:
            raise CallFault("non_literal_argument")
        if keyword.arg in arguments:
            raise CallFault("duplicate_argument")
        arguments[keyword.arg] = _literal(keyword.value)
    return PythonCall(name, arguments, bool(positional))


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise CallFault("not_a_call")
    return ".".join([node.id, *reversed(parts)])


def _literal(node: ast.expr) -> Any:
    """The JSON value of a literal. The nesting was bounded before parsing."""
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(element) for element in node.elts]
    if isinstance(node, ast.Dict):
        result = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise CallFault("non_literal_argument")
            name = _literal(key)
            if not isinstance(name, str):
                raise CallFault("non_json_argument")
            result[name] = _literal(value)
        return result
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _literal(node.operand)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CallFault("non_literal_argument")
        return -value if isinstance(node.op, ast.USub) else value
    raise CallFault("non_json_argument" if isinstance(node, ast.Set) else "non_literal_argument")


def _constant(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and value.bit_length() <= _MAX_INT_BITS:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise CallFault("non_json_argument")
