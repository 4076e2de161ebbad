"""The contracts that every environment and every reward keeps."""

from __future__ import annotations

from typing import Any

from atropos_authoring import EnvironmentContract, RewardContract
from atropos_games.environment import GamesEnvironment, payoff
from games_support import random_player

from atropos_cli.sdk import Rollout, Task, assistant


class TestSelfPlay(EnvironmentContract):
    environment = GamesEnvironment

    def player(self) -> Any:
        return random_player()


class TestKuhnAgainstAPerfectPlayer(EnvironmentContract):
    environment = "games"
    config = {"game": "kuhn", "opponent": ("perfect", "random")}  # noqa: RUF012
    replies = ("[bet]", "[call]", "nothing")
    limit = 4


def side(**info: Any) -> Rollout:
    return Rollout(id="r", task_id="t", messages=(assistant("[5]"),), info=info)


class TestPayoff(RewardContract):
    reward = payoff
    cases = (
        (Task(id="t"), side(payoff=1.0), 1.0),
        (Task(id="t"), side(payoff=-1.5), -1.5),
        (Task(id="t"), side(), 0.0),
        (Task(id="t"), side(payoff="much"), 0.0),
    )
