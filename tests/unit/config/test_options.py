"""Options made from models: kinds, ranges, defaults, and text that becomes a value."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr

from atropos_cli.config.options import Option, options_of, parse_text, value_text


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    depth: int = Field(default=3, ge=1, le=9, description="How\n  deep.")


class Node(BaseModel):
    child: Node | None = None


class Everything(BaseModel):
    count: int = Field(default=5, gt=0)
    rate: float = 0.5
    name: str
    maybe: int | None = None
    text: str | None = None
    flag: bool = False
    level: Literal["easy", "hard"] = "easy"
    size: Literal[1, 2] = 1
    color: Color = Color.RED
    either: int | Literal["auto"] = "auto"
    many: tuple[int, ...] = (1, 2)
    colors: list[Color] = Field(default_factory=list)
    table: dict[str, int] = Field(default_factory=dict)
    rows: list[dict[str, int]] = Field(default_factory=list)
    path: Path = Path("x")
    key: SecretStr | None = None
    inner: Inner = Field(default_factory=Inner)
    annotated: Annotated[int, Field(ge=2)] = 2
    node: Node = Field(default_factory=Node)


OPTIONS = {option.key: option for option in options_of(Everything)}


@pytest.mark.parametrize(
    ("key", "kind", "type_text", "default", "range_text"),
    [
        ("count", "value", "INTEGER", "5", "> 0"),
        ("rate", "value", "NUMBER", "0.5", ""),
        ("name", "value", "TEXT", None, ""),
        ("maybe", "value", "INTEGER", None, ""),
        ("flag", "bool", "true|false", "false", ""),
        ("level", "value", "easy|hard", "easy", ""),
        ("size", "value", "1|2", "1", ""),
        ("color", "value", "red|blue", "red", ""),
        ("either", "value", "INTEGER|auto", "auto", ""),
        ("many", "list", "INTEGER", "1, 2", ""),
        ("colors", "list", "red|blue", None, ""),
        ("table", "json", "JSON", None, ""),
        ("rows", "json", "JSON", None, ""),
        ("path", "value", "PATH", "x", ""),
        ("key", "value", "SECRET", None, ""),
        ("inner.depth", "value", "INTEGER", "3", "1 to 9"),
        ("annotated", "value", "INTEGER", "2", ">= 2"),
    ],
)
def test_what_is_known_of_an_option(key: str, kind: str, type_text: str, default: str | None, range_text: str) -> None:
    option = OPTIONS[key]
    assert (option.kind, option.type_text, option.default_text, option.range) == (kind, type_text, default, range_text)


def test_nested_required_secret_and_recursive_models() -> None:
    assert OPTIONS["name"].required
    assert OPTIONS["key"].secret
    assert OPTIONS["inner.depth"].description == "How deep."
    assert OPTIONS["node.child"].kind == "json"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("count", "7", 7),
        ("maybe", "none", None),
        ("text", "none", "none"),
        ("size", "2", 2),
        ("color", "blue", Color.BLUE),
        ("either", "3", 3),
        ("either", "auto", "auto"),
        ("many", "3,4", (3, 4)),
        ("many", "[5]", (5,)),
        ("many", ("6", "7"), (6, 7)),
        ("colors", ("red",), [Color.RED]),
        ("table", '{"a": 1}', {"a": 1}),
        ("flag", "off", False),
        ("flag", "yes", True),
        ("path", "/tmp/none", Path("/tmp/none")),
    ],
)
def test_text_becomes_a_value_the_model_accepts(key: str, text: Any, value: Any) -> None:
    given = {key: parse_text(OPTIONS[key], text), "name": "n"}
    assert getattr(Everything.model_validate(given), key) == value


@pytest.mark.parametrize(("key", "text"), [("table", "{"), ("many", "[1")])
def test_broken_json_says_so(key: str, text: str) -> None:
    with pytest.raises(ValueError, match="JSON"):
        parse_text(OPTIONS[key], text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "true"),
        (3600.0, "3600"),
        (1e-6, "1e-06"),
        ("", '""'),
        (" a", '" a"'),
        ("a\n", '"a\\n"'),
        ((), "[]"),
        (("a", "b"), "a, b"),
        ({"a": 1}, '{"a": 1}'),
        (SecretStr("hidden"), "********"),
        (Color.RED, "red"),
    ],
)
def test_values_are_shown_as_they_are_typed(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_option_is_a_plain_record() -> None:
    assert isinstance(OPTIONS["count"], Option)
    assert OPTIONS["inner.depth"].flag == "inner.depth"
