"""A task: one problem to solve, as plain JSON."""

from __future__ import annotations

from typing import Any

from pydantic import Field, JsonValue

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.messages import Message


class Task(Frozen):
    """One problem. No code: it can be stored, sent and scored elsewhere.

    id: unique within the environment, its config and the split.
    prompt: the first messages; may be empty when the episode makes them (a game's first screen).
    answer: the gold answer, if the environment has one.
    info: anything else the episode or the rewards need.
    """

    id: str
    prompt: tuple[Message, ...] = ()
    answer: JsonValue = None
    info: JsonDict = Field(default_factory=dict)
    """`info["task_name"]` names the kind of task: retention, balance and reports are kept apart by it."""


TASK_NAME = "task_name"
"""Where environments write the name of a task's kind, and where rows made of it carry it along."""

_ROW_KEYS = (TASK_NAME, "task_kind", "task_type", "bootcamp_name", "bootcamp_names", "ability")
_INFO_KEYS = (*_ROW_KEYS, "bootcamp", "family", "kind")
_INFO_PLACES = ("info", "extra_info", "metadata")
KIND_KEYS = (*_ROW_KEYS, *_INFO_PLACES)
"""Fields of a row that may tell the kind of its task."""


def kind_of_info(info: Any) -> str | None:
    """The name of a task's kind by its info; None when it has none. Older runs have it under other keys."""
    return _first_name(info, _INFO_KEYS) if isinstance(info, dict) else None


def kind_of_row(row: dict[str, Any]) -> str | None:
    """The same by a stored row of any format: its own field, else what stands in its info."""
    own = _first_name(row, _ROW_KEYS)
    return own or next((name for place in _INFO_PLACES if (name := kind_of_info(row.get(place)))), None)


def _first_name(fields: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, list) and value:  # one name for each rollout of a group
            value = value[0]
        if isinstance(value, str) and value.strip():
            return value
    return None
