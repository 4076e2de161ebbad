"""Turn pydantic's validation errors into lines a user can act on: key, expected value, given value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from atropos_cli.config.options import MASK, Option, value_text

Path = tuple[str, ...]
SHOWN = 80

_EXPECTED = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "an integer of reasonable size",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "dict_type": "keys and values",
    "mapping_type": "keys and values",
    "model_type": "keys and values",
    "model_attributes_type": "keys and values",
    "path_type": "a path",
    "none_required": "nothing (null)",
}
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
    "multiple_of": ("multiple_of", "a multiple of"),
}


def expected(error: ErrorDetails) -> str:
    """What the failed check wanted, as a phrase that follows "expected"; empty when only a message is known."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"{words} {value_text(context[name])}"
    if kind in ("literal_error", "enum"):
        return f"one of {context['expected']}"
    if kind in ("too_short", "string_too_short"):
        return f"at least {context['min_length']} {'items' if kind == 'too_short' else 'characters'}"
    if kind in ("too_long", "string_too_long"):
        return f"at most {context['max_length']} {'items' if kind == 'too_long' else 'characters'}"
    if kind == "string_pattern_mismatch":
        return f"text that matches {context['pattern']}"
    return ""


def describe(error: ErrorDetails, *, secret: bool = False) -> str:
    """One line on what is wrong with a value: what was expected, and what is there."""
    if error["type"] == "missing":
        return "is required"
    wanted = expected(error)
    if not wanted:
        message = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        wanted = message[:1].lower() + message[1:]
        return (
            wanted if isinstance(error["input"], Mapping) else f"{wanted}, got {shown(error['input'], secret=secret)}"
        )
    value = error["input"]
    if error["type"] in _BOUNDS and isinstance(value, str) and not secret:
        return f"expected {wanted}, got {value}"  # text that was read as a number
    return f"expected {wanted}, got {shown(value, secret=secret)}"


def shown(value: Any, *, secret: bool = False) -> str:
    """A value as a message quotes it: short, one line, secrets masked."""
    if secret:
        return MASK
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def failures(error: ValidationError, options: Mapping[tuple[str, ...], Option]) -> list[tuple[Path, str]]:
    """(path of the value, what is wrong with it) of every failed check.

    A type with several alternatives fails once per alternative; those become one line.
    """
    found: dict[Path, list[ErrorDetails]] = {}
    for item in error.errors(include_url=False):
        loc = tuple(str(part) for part in item["loc"])
        option = option_at(options, loc)
        single = option is not None and option.kind == "value"
        found.setdefault(option.path if option is not None and single else loc, []).append(item)
    lines = []
    for path, items in found.items():
        option = option_at(options, path)
        secret = option is not None and option.secret
        wanted = [text for text in (expected(item) for item in items) if text]
        if len(items) > 1 and wanted:
            lines.append((path, f"expected {' or '.join(wanted)}, got {shown(items[0]['input'], secret=secret)}"))
        else:
            lines.append((path, describe(items[0], secret=secret)))
    return lines


def option_at(options: Mapping[tuple[str, ...], Option], loc: tuple[str, ...]) -> Option | None:
    """The option that a location lies in; None when it is about a whole model."""
    for end in range(len(loc), 0, -1):
        found = options.get(loc[:end])
        if found is not None:
            return found
    return None


def validation_text(error: ValidationError) -> str:
    """A model's errors in lines of: key, what was expected, what was there."""
    lines = [f"{'.'.join(path) or error.title}: {text}" for path, text in failures(error, {})]
    return lines[0] if len(lines) == 1 else "\n".join([f"{error.title} is not valid", *(f"  {line}" for line in lines)])
