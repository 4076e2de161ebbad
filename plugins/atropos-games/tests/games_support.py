"""Players for tests: what they see is all they go by."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from atropos_authoring import run_environment
from atropos_games.environment import GamesEnvironment

from atropos_cli.sdk import Message, ScoredGroup

Player = Callable[[Sequence[Message]], str]


def offered(messages: Sequence[Message]) -> list[str]:
    """The moves that the last message lists."""
    return re.findall(r"\[([^\]]+)\]", messages[-1].text.rpartition("Your moves:")[2])


def first_move(messages: Sequence[Message]) -> str:
    return f"[{offered(messages)[0]}]"


def random_player(seed: int = 0) -> Player:
    rng = random.Random(seed)
    return lambda messages: f"I think. [{rng.choice(offered(messages))}]"


def play(folder: Path, player: Player, *, limit: int = 2, group_size: int = 2, **config: Any) -> list[ScoredGroup]:
    return run_environment(
        GamesEnvironment, folder=folder, replies=player, config=config, limit=limit, group_size=group_size
    )
