"""What the model is shown of the turns so far: the opening and the newest turns, within a number of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from atropos_cli.sdk import Message
from atropos_textworld.agent.reply import as_text

_FIRST_RATIO = 0.4
"""Tokens a byte, before the first prompt was counted."""
_PER_MESSAGE = 16
"""Bytes that a chat template adds to a message, about."""
_ROOM = 0.75
"""Share of the cap that is filled after turns were left out, so that not every turn changes the beginning."""


class History:
    """Grows by turns. The opening (instructions and first screen) and the newest turn always stay.

    Lengths are estimated from the tokens a byte that the server counted in the last prompt: asking it to
    tokenise would cost a request a turn, and many servers cannot.
    """

    def __init__(self, opening: Sequence[Message], cap: int) -> None:
        self._opening = tuple(opening)
        self._turns: list[tuple[Message, ...]] = []
        self._cap = cap
        self._ratio = _FIRST_RATIO
        self.left_out = 0

    def add(self, reply: Message, answers: Sequence[Message]) -> None:
        """A turn that was played, and what came of it."""
        self._turns.append((reply, *answers))

    def messages(self) -> tuple[Message, ...]:
        """The next prompt."""
        if self._tokens() > self._cap:
            while self._tokens() > self._cap * _ROOM and self.left_out < len(self._turns) - 1:
                self.left_out += 1
        return self._shown()

    def counted(self, tokens: int | None) -> None:
        """How many tokens the last prompt had."""
        size = _bytes(self._shown())
        if tokens and size:
            self._ratio = tokens / size

    def _shown(self) -> tuple[Message, ...]:
        return self._opening + tuple(message for turn in self._turns[self.left_out :] for message in turn)

    def _tokens(self) -> float:
        return _bytes(self._shown()) * self._ratio


def _bytes(messages: Sequence[Message]) -> int:
    return sum(len(as_text(message).encode("utf-8", "replace")) + _PER_MESSAGE for message in messages)
