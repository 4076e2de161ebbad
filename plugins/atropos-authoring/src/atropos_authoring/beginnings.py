"""The first turns of episodes and games, without a model: each role gives the same reply."""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from atropos_cli.sdk import Environment, Episode, Game, GameEnvironment, Message, Task, assistant
from atropos_cli.sdk.authoring import REPLY
from atropos_cli.sdk.backends import Completion


class Anyone:
    """A RoleModel."""

    async def generate(self, messages: Sequence[Message], *, n: int = 1, **asked: Any) -> Sequence[Completion]:
        """The reply n times."""
        return [Completion(message=assistant(REPLY), finish_reason="stop")] * n

    async def reply(self, messages: Sequence[Message]) -> Message:
        """The reply."""
        return assistant(REPLY)

    async def tokenize(self, text: str) -> Sequence[int]:
        """Its bytes."""
        return list(text.encode())

    async def score_logprobs(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """All ids are equally likely."""
        return [-math.log(256)] * len(continuation_ids)

    def describe(self) -> dict[str, Any]:
        """No model."""
        return {}


def begin(environment: Environment, task: Task) -> Episode | Game:
    """An episode of the task, or a game."""
    if isinstance(environment, GameEnvironment):
        return environment.game(task)
    episode = environment.episode(task)
    episode.models = defaultdict(Anyone)
    return episode


async def first_messages(begun: Episode | Game) -> list[Message]:
    """What reset() gave; of a game, all that its players see. Raises ValueError for a player that it does not have."""
    first: Any = begun.reset()
    if inspect.isawaitable(first):
        first = await first
    if not isinstance(begun, Game):
        return list(first)
    for player in first:
        if player not in begun.players:
            raise ValueError(f"{player!r} is none of the players: {', '.join(begun.players)}")
    return [message for messages in first.values() for message in messages]
