"""What is known of the games being played, by conversation: filled by episodes, read by baseline backends.

Games are deterministic, so the same conversation is the same state of the same game, whichever rollout it belongs
to. Nothing is kept while no baseline is open; the table is bounded, and newer states push out older ones.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from atropos_cli.sdk import Message

STATES = 16_384
"""States kept; rollouts that are played at the same time need one each."""


@dataclass(frozen=True, slots=True)
class State:
    """commands: the admissible ones. plan: what is left of the plan that wins, None for a game that left it."""

    commands: tuple[str, ...]
    plan: tuple[str, ...] | None


class Table:
    """States by conversation, while there is anybody to read them."""

    def __init__(self, size: int = STATES) -> None:
        self._size = size
        self._readers = 0
        self._states: OrderedDict[bytes, State] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    @property
    def read(self) -> bool:
        """Whether a baseline is open."""
        return self._readers > 0

    def open(self) -> None:
        """Begin to keep what is published."""
        self._readers += 1

    def close(self) -> None:
        """Stop; the last reader clears the table."""
        self._readers -= 1
        if not self._readers:
            self._states.clear()

    def publish(
        self, messages: Sequence[Message], *, commands: Iterable[str], plan: Sequence[str], played: Sequence[str]
    ) -> None:
        """Say what is known of the state in which a model is about to be asked with `messages`.

        plan: the game's whole plan. played: the commands played so far. Costs nothing while nobody reads.
        """
        if not self._readers:
            return
        on_plan = tuple(played) == tuple(plan[: len(played)])
        key = conversation_key(messages)
        self._states[key] = State(tuple(commands), tuple(plan[len(played) :]) if on_plan else None)
        self._states.move_to_end(key)
        while len(self._states) > self._size:
            self._states.popitem(last=False)

    def find(self, messages: Sequence[Message]) -> State | None:
        """The state of a conversation, None when nothing was published for it or it is too long ago."""
        return self._states.get(conversation_key(messages))


def conversation_key(messages: Iterable[Message]) -> bytes:
    """A digest of what was said: roles, texts and tool calls."""
    digest = hashlib.blake2b(digest_size=16)
    for message in messages:
        parts = [message.role, message.text]
        for call in message.tool_calls or ():
            parts += [call.function.name, str(call.function.arguments)]
        for part in parts:
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big"))
            digest.update(data)
        digest.update(b"\xff")
    return digest.digest()


TABLE = Table()
"""The process's table."""

publish = TABLE.publish
