"""Values with names in them, each given once: --env NAME=VALUE repeated, or an option whose value is JSON."""

from __future__ import annotations

import json
import os
import re
from typing import Any, TypeVar

from atropos_cli.errors import UsageError

T = TypeVar("T")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def put_once(found: dict[str, T], name: str, value: T, option: str) -> None:
    """Enter a value under its name. Raises UsageError where the name has another value already."""
    if name in found and found[name] != value:
        raise UsageError(f"{option}: {name} is given twice, with different values", hint="give it once")
    found[name] = value


def json_once(text: str, option: str) -> Any:
    """The value of JSON text. Raises ValueError when it is not JSON, UsageError for a key given twice."""

    def entered(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            put_once(found, name, value, option)
        return found

    return json.loads(text, object_pairs_hook=entered)


def variable(text: str) -> tuple[str, str | None]:
    """(name, value) of --env NAME=VALUE; value None for NAME alone, which must be set here. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not _VARIABLE.fullmatch(name):
        raise UsageError(f"--env {name!r} is not NAME or NAME=VALUE")
    if not equals and name not in os.environ:
        raise UsageError(f"--env {name}: the variable is not set here", hint=f"export {name}=..., or drop it")
    return name, value if equals else None
