"""An environment with its options in one text: [LABEL=]ENV[:option=value,...], as --eval and --of take it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from atropos_cli.config.pairs import json_once, put_once
from atropos_cli.errors import UsageError

_CLOSING = {"[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class EnvironmentText:
    """label: "" where none was given. options: JSON values; other values are text. Dots make nested options."""

    label: str
    name: str
    options: dict[str, Any]


def read_environment_text(text: str, option: str) -> EnvironmentText:
    """Raises UsageError for a part that is not option=value, and for an option given twice."""
    head, _, tail = text.partition(":")
    if head.endswith(".py"):  # ./file.py:Name
        attribute, _, tail = tail.partition(":")
        head = f"{head}:{attribute}"
    while _names_a_member(tail):  # of a family: gymnasium:CartPole-v1
        member, _, tail = tail.partition(":")
        head = f"{head}:{member}"
    label, _, name = head.rpartition("=")
    if not name.strip():
        raise UsageError(f"{option} {text!r} names no environment", hint=f"{option} [LABEL=]ENV[:option=value,...]")
    options: dict[str, Any] = {}
    for part in filter(None, _parts(tail)):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"{option} {text!r}: {part!r} is not option=value", hint=f"{option} arithmetic:few_shot=2")
        put_once(options, key.strip().replace("-", "_"), _value(value.strip(), option), f"{option} {text!r}")
    return EnvironmentText(label.strip(), name.strip(), options)


def _names_a_member(tail: str) -> bool:
    """Does it begin with a member's name? Options have an = behind their names, which are lower case."""
    first, colon, _ = tail.partition(":")
    return bool(first) and not {"=", ","} & set(first) and (bool(colon) or first != first.lower())


def write_environment_text(label: str, name: str, options: Mapping[str, Any]) -> str:
    """The text that reads as these."""
    tail = ",".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in options.items())
    return f"{label}{'=' if label else ''}{name}{':' if tail else ''}{tail}"


def nested(options: Mapping[str, Any], option: str) -> dict[str, Any]:
    """Options with dots in their names as tables in tables. Raises UsageError where one is both."""
    found: dict[str, Any] = {}
    for key, value in options.items():
        *above, last = key.split(".")
        tree = found
        for part in above:
            tree = tree.setdefault(part, {})
            if not isinstance(tree, dict):
                raise UsageError(f"{option}: {key} is an option of {part}, which has a value already")
        put_once(tree, last, value, option)
    return found


def _parts(text: str) -> Iterator[str]:
    """The parts between commas that are not within brackets or double quotes."""
    part, closing, quoted, escaped = "", "", False, False
    for char in text:
        if quoted:
            quoted, escaped = escaped or char != '"', char == "\\" and not escaped
        elif char == '"':
            quoted = True
        elif char in _CLOSING:
            closing = _CLOSING[char] + closing
        elif closing and char == closing[0]:
            closing = closing[1:]
        elif char == "," and not closing:
            yield part.strip()
            part = ""
            continue
        part += char
    yield part.strip()


def _value(text: str, option: str) -> Any:
    try:
        return json_once(text, option)
    except ValueError:
        return text
