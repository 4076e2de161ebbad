"""Lists of installed components, read without importing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atropos_cli.console.ending import counted, end, shell
from atropos_cli.console.session import Session
from atropos_cli.plugins.spec import Kind

_FOLLOWING = {
    "environment": shell("env", "info", "ENV"),
    "reward": shell("score", "RUN", "--reward", "NAME", "-o", "scored.jsonl"),
    "trainer": shell("train", "grpo", "--help"),
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A line for something that no plugin registers: its name, more fields for JSON, its origin, a summary."""

    name: str
    fields: Mapping[str, Any]
    origin: str
    summary: str


def print_components(session: Session, kind: Kind, *, as_json: bool, more: Sequence[Listed] = ()) -> None:
    """Name, distribution and summary of every component of a kind."""
    items = session.registry.registrations(kind)
    if as_json:
        session.out.json(
            [
                {
                    "name": item.name,
                    "qualified": item.qualified,
                    "dist": item.dist,
                    "version": item.version,
                    "summary": item.summary,
                }
                for item in items
            ]
            + [{"name": item.name, **item.fields} for item in more]
        )
        return
    if not items:
        end(session.out, f"no {kind} is installed", shell("plugins", "list"))
        return
    names = [item.name for item in items]
    rows = [
        (
            item.name if names.count(item.name) == 1 else item.qualified,
            f"{item.dist} {item.version}",
            item.summary,
        )
        for item in items
    ]
    rows += [(item.name, item.origin, item.summary) for item in more]
    session.out.table(rows)
    end(session.out, counted(len(rows), kind), _FOLLOWING.get(kind))
