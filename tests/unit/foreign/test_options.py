"""Options of a foreign environment: what is typed arrives as the type that its schema asks for."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from atropos_cli.config.options import options_of, parse_text
from atropos_cli.foreign.options import config_model


def either(*kinds: str) -> dict[str, Any]:
    return {"anyOf": [{"type": kind} for kind in kinds]}


SCHEMA: dict[str, Any] = {
    "numbers": {"type": "array", "items": {"type": "integer"}},
    "names": {"type": "array", "items": {"type": "string"}},
    "anything": {},
    "endless": {"type": "number"},
    "text": {"type": "string"},
    "table": either("object", "null"),
    "text_or_list": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "count_or_text": either("string", "integer"),
    "share_or_none": either("null", "number"),
    "switch_or_count": either("boolean", "integer"),
    "text_or_none": either("string", "null"),
}
VALUES: dict[str, Any] = {
    "numbers": [1], "names": ["x"], "endless": "inf", "text": "x", "text_or_list": "x", "count_or_text": 1,
    "switch_or_count": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("numbers", "[1, 2]", [1, 2]),
        ("names", "a,b", ["a", "b"]),
        ("anything", "5", 5),
        ("anything", "[1]", [1]),
        ("anything", "null", None),
        ("anything", "plain words", "plain words"),
        ("endless", "2", 2.0),
        ("endless", "inf", "inf"),
        ("text", "[1]", "[1]"),
        ("text", "5", "5"),
        ("table", '{"a": 1}', {"a": 1}),
        ("text_or_list", "5", "5"),
        ("text_or_list", '["a"]', ["a"]),
        ("count_or_text", "5", 5),
        ("count_or_text", "all", "all"),
        ("share_or_none", "0.5", 0.5),
        ("share_or_none", "none", None),
        ("switch_or_count", "true", True),
        ("switch_or_count", "3", 3),
        ("text_or_none", "5", "5"),
    ],
)
def test_what_is_typed_has_the_type_of_the_schema(key: str, text: str, value: Any) -> None:
    model = config_model("Made", BaseModel, {"properties": SCHEMA}, VALUES)
    option = next(item for item in options_of(model) if item.key == key)
    made = model.model_validate({key: parse_text(option, text)}).model_dump(mode="json")
    assert made[key] == value
    assert type(made[key]) is type(value)
    assert model.model_validate(made).model_dump(mode="json") == made  # a plan is read again


def test_own_values_stay_as_they_are() -> None:
    made = config_model("Made", BaseModel, {"properties": SCHEMA}, VALUES)().model_dump(mode="json")
    assert {key: made[key] for key in VALUES} == VALUES


def test_broken_json_for_a_value_of_any_type_says_so() -> None:
    (option,) = options_of(config_model("Made", BaseModel, {"properties": {"anything": {}}}, {}))
    with pytest.raises(ValueError, match="JSON"):
        parse_text(option, "[1,")
