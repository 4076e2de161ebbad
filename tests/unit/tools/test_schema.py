"""Schemas of Python functions as tools."""

from __future__ import annotations

import gc
from abc import ABC
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from atropos_cli.errors import PluginError
from atropos_cli.tools.schema import _known, tool_of, tools_of


class Place(BaseModel):
    city: str
    zone: int = 0


def convert(amount: float, to: Literal["EUR", "USD"] = "EUR", *, digits: int = 2) -> float:
    """Convert an amount of money.

    It is rounded.

    amount: in the other currency,
        never negative
    to: the currency
    """
    return round(amount, digits)


def google(place: Place, tags: list[str] | None = None) -> str:
    """Look at a place.

    Args:
        place (Place): where
        tags: words

    Returns:
        text: what is there
    """
    return place.city


def sphinx(n: Annotated[int, Field(ge=1)]) -> int:
    """Count.

    :param n: how far
    :return: a number
    """
    return n


def parameters(function: Any) -> dict[str, Any]:
    schema: Any = tool_of(function).schema["function"]
    found: dict[str, Any] = schema["parameters"]
    return found


def test_signature_and_docstring_make_the_schema() -> None:
    assert tool_of(convert).schema == {
        "type": "function",
        "function": {
            "name": "convert",
            "description": "Convert an amount of money. It is rounded.",
            "parameters": {
                "type": "object",
                "properties": {
                    "amount": {"type": "number", "description": "in the other currency, never negative"},
                    "to": {"type": "string", "enum": ["EUR", "USD"], "default": "EUR", "description": "the currency"},
                    "digits": {"type": "integer", "default": 2},
                },
                "required": ["amount"],
                "additionalProperties": False,
            },
        },
    }


def test_other_styles_of_docstrings_are_read() -> None:
    found = parameters(google)
    assert found["properties"]["tags"]["description"] == "words"
    assert found["$defs"]["Place"]["required"] == ["city"]
    assert tool_of(google).schema["function"]["description"] == "Look at a place."  # type: ignore[index,call-overload]
    assert parameters(sphinx)["properties"]["n"] == {"type": "integer", "minimum": 1, "description": "how far"}


def test_arguments_come_as_the_function_takes_them() -> None:
    bound = tool_of(google).bind({"place": {"city": "Oslo"}})
    assert bound == {"place": Place(city="Oslo")}
    with pytest.raises(ValidationError):
        tool_of(sphinx).bind({"n": 0})


def odd(
    json: str, model_config: int = 1, _hidden: int = 2, model_fields_set: Annotated[int, Field(description="n")] = 3
) -> None:
    """Names that mean something in pydantic."""


def test_any_name_of_a_parameter_is_kept(recwarn: pytest.WarningsRecorder) -> None:
    tool = tool_of(odd)
    assert list(parameters(odd)["properties"]) == ["json", "model_config", "_hidden", "model_fields_set"]
    assert parameters(odd)["properties"]["model_fields_set"]["description"] == "n"
    assert tool.bind({"json": "x", "_hidden": 5, "model_fields_set": 7}) == {
        "json": "x",
        "_hidden": 5,
        "model_fields_set": 7,
    }
    assert not recwarn.list


def test_inherited_methods_are_tools_and_properties_are_not_read() -> None:
    class Base(ABC):
        def read(self) -> str:
            """Read."""
            return ""

    class Disk(Base):
        def write(self) -> None:
            """Write."""

        @property
        def free(self) -> int:
            raise RuntimeError("not mounted")

    assert [tool.name for tool in tools_of(Disk())] == ["read", "write"]


def test_an_object_has_its_public_methods_as_tools() -> None:
    class Box:
        size = 3

        def put(self, thing: str) -> None:
            """Put something in."""

        def close(self) -> None:
            """Not a tool."""

        def _inner(self) -> None: ...

    (tool,) = tools_of(Box())
    assert tool.name == "put"
    assert list(tool.schema["function"]["parameters"]["properties"]) == ["thing"]  # type: ignore[index,call-overload,arg-type]


def many(*numbers: int) -> int:
    return sum(numbers)


async def stream(n: int) -> AsyncIterator[int]:
    yield n


def field(n: int = Field(default=1, ge=0)) -> int:
    return n


def zähle(n: int) -> int:
    return n


def unknown(n: np.ndarray) -> int:  # type: ignore[name-defined]  # noqa: F821
    return 0


def pattern(n: Annotated[str, Field(pattern="(")]) -> str:
    return n


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ((many,), r"takes \*numbers"),
        ((lambda x: x,), "needs a name"),
        ((zähle,), "letters"),
        ((sphinx, sphinx), "two tools have the name"),
        ((stream,), "asynchronous generator"),
        ((field,), "is a Field"),
        ((unknown,), "are not known"),
        ((pattern,), "no schema"),
        ((max,), "no signature"),
        (sphinx, "not function sphinx"),
        ({"sphinx": sphinx}, "not dict"),
        ((tool for tool in (sphinx,)), "not generator"),
        (Place, "not class Place"),
        (None, "not None"),
        (object.__new__(type("Empty", (), {})), "no public methods"),
    ],
)
def test_what_can_be_no_tool_is_told(source: Any, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        tools_of(source)


def test_functions_of_an_episode_are_forgotten() -> None:
    class Box:
        def put(self, thing: str = "x") -> None:
            """Put."""

    def made(number: int) -> Any:
        def get(n: int = number) -> int:
            """Get."""
            return n

        return get

    first, second = (tools_of(Box())[0] for _ in range(2))
    assert first.schema is second.schema
    assert first.function is not second.function
    got = [tool_of(made(number)).schema["function"]["parameters"] for number in (1, 2)]  # type: ignore[index,call-overload]
    assert [one["properties"]["n"]["default"] for one in got] == [1, 2]  # type: ignore[index,call-overload]
    gc.collect()
    before = len(_known)
    tool_of(made(3))
    gc.collect()
    assert len(_known) == before
