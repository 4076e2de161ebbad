"""A task: one problem to solve, as plain JSON."""

from __future__ import annotations

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
