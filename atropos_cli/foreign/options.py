"""Options of an environment of ours from the config of a foreign one: its JSON schema and its own values."""

from __future__ import annotations

import keyword
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin

from pydantic import BaseModel, Field, create_model

from atropos_cli.foreign.data import Data

_PLAIN: Mapping[str, Any] = {"integer": int, "number": float, "boolean": bool, "string": str}
_FINITE = Annotated[float, Field(allow_inf_nan=False)]
_LONGEST = 200


def config_model(
    name: str, base: type[BaseModel], schema: Data, values: Data, hidden: Collection[str] = ()
) -> type[BaseModel]:
    """A Config with a field for each property, beside those of `base`.

    hidden: properties that the engine decides. All but numbers, texts, choices and lists of texts are given as JSON;
    anything that cannot be read as JSON is text.
    """
    definitions = schema.get("$defs", {})
    fields: dict[str, Any] = {}
    for key, given in schema.get("properties", {}).items():
        if key in hidden or key in base.model_fields or not key.isidentifier() or keyword.iskeyword(key):
            continue
        if key.startswith(("_", "model_")):
            continue
        kind = _type(_resolved(given, definitions), definitions)
        default = values.get(key)
        more: dict[str, Any] = {}
        if get_origin(kind) is Union:
            more = {"union_mode": "left_to_right"}
        if default is None:
            kind = Any if kind is Any else Optional[kind]  # noqa: UP045 (made at run time)
        elif not _fits(default, kind):  # such as "inf", which is what a number without an end is in JSON
            if not isinstance(default, str):
                kind = Any
            else:  # of the two, text is what fits any value, so it comes last
                kind, more = (_FINITE if kind is float else kind) | str, {"union_mode": "left_to_right"}
        described = " ".join(str(given.get("description", "")).split())[:_LONGEST]
        described = described or f"{key} of the environment's config."
        fields[key] = (kind, Field(default=default, description=described, **more))
    made: type[BaseModel] = create_model(name, __base__=base, **fields)
    return made


def chosen(config: BaseModel, base: type[BaseModel], values: Data) -> Data:
    """What differs from the environment's own values, to be given to its config."""
    data = config.model_dump(mode="json")
    return {key: value for key, value in data.items() if key not in base.model_fields and value != values.get(key)}


def _resolved(given: Data, definitions: Mapping[str, Any]) -> Data:
    while "$ref" in given:
        given = definitions.get(str(given["$ref"]).rpartition("/")[2], {})
    return given


def _type(given: Data, definitions: Mapping[str, Any]) -> Any:
    if "enum" in given:
        return Literal[tuple(given["enum"])]
    options = [_resolved(item, definitions) for item in given.get("anyOf", ())]
    some = [item for item in options if item.get("type") != "null"]
    if some:
        # Text last: a value may be any of them, and every value is text as well.
        kinds = sorted((_type(item, definitions) for item in some), key=_place)
        return Any if Any in kinds else Union[tuple(kinds)]  # noqa: UP007 (made at run time)
    if given.get("type") == "array" and given.get("items", {}).get("type") == "string":
        return list[str]
    return _PLAIN.get(str(given.get("type")), Any)


def _place(kind: Any) -> int:
    order = (int, float, bool)
    return order.index(kind) if kind in order else len(order) + (kind is str)


def _fits(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if get_origin(kind) is Union:
        return any(_fits(value, item) for item in get_args(kind))
    if get_origin(kind) is Literal:
        return value in kind.__args__
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, list if kind == list[str] else kind)
