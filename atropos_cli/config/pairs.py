"""Options that are repeated with a name in each value: --env NAME=VALUE, --template-arg NAME=VALUE."""

from __future__ import annotations

from typing import TypeVar

from atropos_cli.errors import UsageError

T = TypeVar("T")


def put_once(found: dict[str, T], name: str, value: T, option: str) -> None:
    """Enter a value under its name. Raises UsageError where the name has another value already."""
    if name in found and found[name] != value:
        raise UsageError(f"{option}: {name} is given twice, with different values", hint="give it once")
    found[name] = value
