"""The base of all domain models: frozen, and strict about unknown keys."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

from pydantic import BaseModel, ConfigDict, JsonValue

JsonDict = dict[str, JsonValue]


class Frozen(BaseModel):
    """An immutable record. Unknown keys are errors: a misspelt field must not pass silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    def replace(self, **changes: Any) -> Any:
        """A copy with some fields changed (not validated again; for fields the caller just made)."""
        return self.model_copy(update=changes)


def clean_text(text: str) -> str:
    """Replace lone surrogates by U+FFFD, so that any text can be written as UTF-8.

    Model servers and JSON files may hold an escaped half of a pair; a whole pair is one character
    already and stays.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def is_finite(value: object) -> TypeGuard[int | float]:
    """Is it a number (no truth value) that a float can hold? Whole numbers in JSON may have any length."""
    try:
        return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)
    except OverflowError:
        return False


def is_value(value: object) -> TypeGuard[int | float]:
    """Is it what rewards and metrics may be: a number that a float can hold, or a truth value, which counts 0 or 1?"""
    return isinstance(value, bool) or is_finite(value)
