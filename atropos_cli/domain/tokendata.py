"""What token data may be, decided once for models, servers' answers and stored rows.

A token id is an integer from 0 to 2^31 - 1, a log-probability a finite number, a mask true/false or 0/1. Text ("104"),
booleans and floats (104.0) are no ids: whatever turned ids into them may have done more, so nothing is converted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Strict, TypeAdapter, ValidationError, WithJsonSchema

from atropos_cli.domain.base import is_finite

TOKEN_LIMIT = 2**31
"""Token ids are below it."""


def _in_range(ids: tuple[int, ...]) -> tuple[int, ...]:
    # min() and max() in place of bounds on each item: those take four times as long as all the rest.
    if ids and (min(ids) < 0 or max(ids) >= TOKEN_LIMIT):
        raise ValueError("token ids are integers from 0 to 2^31 - 1")
    return ids


def _as_flags(mask: Any) -> Any:
    """0 and 1 as booleans; what is neither is left to the validation behind it."""
    if isinstance(mask, list | tuple):
        kinds = set(map(type, mask))
        return tuple(map(bool, mask)) if int in kinds and is_binary(mask) else mask
    return bool(mask) if type(mask) is int and mask in (0, 1) else mask


_Id = Annotated[int, Strict(), WithJsonSchema({"type": "integer", "minimum": 0, "exclusiveMaximum": TOKEN_LIMIT})]
_Flag = Annotated[bool, Strict()]
TokenIds = Annotated[tuple[_Id, ...], AfterValidator(_in_range)]
Logprobs = tuple[Annotated[float, Strict()], ...]
"""Finite by the configuration of the models (`Frozen`)."""
Mask = Annotated[_Flag | tuple[_Flag, ...], BeforeValidator(_as_flags)]

_IDS: TypeAdapter[tuple[int, ...]] = TypeAdapter(TokenIds)
_LOGPROBS: TypeAdapter[tuple[float, ...]] = TypeAdapter(Logprobs)


def ids_fault(ids: Iterable[Any]) -> str | None:
    """What is wrong with token ids, with its place; None when nothing is."""
    try:
        _IDS.validate_python(ids)
    except ValidationError:
        return next(
            (
                f"{_shown(value)} at position {i}"
                for i, value in enumerate(ids)
                if type(value) is not int or not 0 <= value < TOKEN_LIMIT
            ),
            "no list of integers",
        )
    return None


def logprobs_fault(logprobs: Iterable[Any]) -> str | None:
    """What is wrong with log-probabilities, with its place; None when nothing is. Take those out that are missing."""
    try:
        if isfinite(sum(_LOGPROBS.validate_python(logprobs))):
            return None
    except ValidationError:
        pass
    return next((f"{_shown(value)} at position {i}" for i, value in enumerate(logprobs) if not is_finite(value)), None)


def is_binary(mask: Sequence[Any]) -> bool:
    """Is a mask made of true/false or 0/1 alone?"""
    return set(map(type, mask)) <= {bool, int} and set(mask) <= {0, 1}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
