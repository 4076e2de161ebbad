"""Placeholders in the arguments and variables of a component, filled in where the component starts.

    {host} {port} {port:NAME}        the component's own address, and the ports picked on its node
    {endpoint:C}                     HOST:PORT of component C (its first port); waits until C has published it
    {endpoint:C.NAME}                HOST:PORT of the port NAME of C
    {endpoint:C.host} {endpoint:C.port} {endpoint:C.NAME.port}
    {run}                            the job's folder
    {shard}                          INDEX/COUNT of this task of an array (0/1 without an array)

They are replaced inside an argument; everything else, other braces included, stays as it is. `escape` keeps
text literally: `{port}` becomes `{{port}}`, and one pair of braces around a placeholder is taken off again.
Standard library only: the program on the compute node imports this and nothing heavier.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NAME = r"[A-Za-z][A-Za-z0-9_-]*"
_TOKEN = rf"host|run|shard|port(?::{_NAME})?|endpoint:{_NAME}(?:\.{_NAME}){{0,2}}"
_PATTERN = re.compile(rf"(\{{+)({_TOKEN})(\}}+)")


def fill(text: str, value: Callable[[str], str]) -> str:
    """The text with each placeholder replaced by value(its inside, such as "port" or "endpoint:server0")."""

    def one(match: re.Match[str]) -> str:
        before, token, after = match.groups()
        extra = min(len(before), len(after)) - 1
        if extra:
            return f"{before[1:]}{token}{after[1:]}"
        return f"{before[1:]}{value(token)}{after[1:]}"

    return _PATTERN.sub(one, text)


def escape(text: str) -> str:
    """Text that `fill` gives back unchanged: for what a user typed."""
    return _PATTERN.sub(lambda match: f"{{{match.group()}}}", text)


def tokens(text: str) -> list[str]:
    """The insides of the placeholders that `fill` would replace."""
    found: list[str] = []
    fill(text, lambda token: found.append(token) or "")  # type: ignore[func-returns-value]
    return found


def endpoint_parts(token: str) -> tuple[str, str | None, str | None]:
    """(component, port name or None for its first, "host" | "port" | None for both) of "endpoint:C..."."""
    name, *rest = token.removeprefix("endpoint:").split(".")
    part = rest.pop() if rest and rest[-1] in ("host", "port") else None
    return name, rest[0] if rest else None, part


def joined(host: str, port: int) -> str:
    """HOST:PORT, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
