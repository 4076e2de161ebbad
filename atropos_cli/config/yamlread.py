"""YAML with the core schema of YAML 1.2, no repeated keys, and the line of each key.

PyYAML implements YAML 1.1, where `no` is False, `1e-6` is text, `1:30` is ninety and a repeated key
silently wins. Configuration files need none of that.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

MAX_NODES = 100_000
Key = tuple[str, ...]


class CoreLoader(yaml.SafeLoader):
    """A safe loader whose plain scalars follow the YAML 1.2 core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own name)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are the text as in the file."""
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}


_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_DIGITS = list("-+0123456789.")


def _resolver(tag: str, pattern: re.Pattern[str], first: list[str]) -> None:
    CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", pattern, first)


_resolver("null", _NULL, ["~", "n", "N", ""])
_resolver("bool", _BOOL, list("tTfF"))
_resolver("int", _INT, _DIGITS)  # before float: the first match wins
_resolver("float", _FLOAT, _DIGITS)
_resolver("merge", re.compile(r"^<<$"), ["<"])


def _integer(loader: CoreLoader, node: Any) -> int:
    text = node.value
    if _INT.match(text) is None:
        raise _error(f"{text!r} is not an integer", node)
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _number(loader: CoreLoader, node: Any) -> float:
    text = node.value.lower()
    if _FLOAT.match(node.value) is None:
        raise _error(f"{node.value!r} is not a number", node)
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


CoreLoader.add_constructor("tag:yaml.org,2002:int", _integer)
CoreLoader.add_constructor("tag:yaml.org,2002:float", _number)


def parse(text: str) -> tuple[Any, dict[Key, int]]:
    """(value, line of each key) of one YAML document. Raises yaml.YAMLError."""
    loader = CoreLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, {}
        lines: dict[Key, int] = {}
        _walk(node, (), lines, [MAX_NODES])
        return loader.construct_document(node), lines
    finally:
        loader.dispose()


def _walk(node: Any, path: Key, lines: dict[Key, int], budget: list[int]) -> None:
    """Note the line of every key; refuse repeated keys, keys that are not text, and aliases that expand without end."""
    budget[0] -= 1
    if budget[0] < 0:
        raise _error("too many values (aliases count)", node)
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _error("a key must be plain text", key)
            if key.value in seen and key.value != "<<":
                raise _error(f"the key {key.value!r} was already given in line {seen[key.value]}", key)
            seen[key.value] = key.start_mark.line + 1
            below = (*path, key.value)
            lines.setdefault(below, key.start_mark.line + 1)
            _walk(value, below, lines, budget)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _walk(item, path, lines, budget)


def _error(problem: str, node: Any) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
