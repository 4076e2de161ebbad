"""Role-conditioned advantages (SPIRAL, arXiv 2506.24119): the average is read before it is updated.

The rows are worked out by hand for a decay of 0.95: advantage R - b, then b = 0.95 b + 0.05 R.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task
from atropos_cli.rollout.baselines import Baselines

Game = tuple[str, float | None, float | None]
"""A game, and what its first and second player got."""

TABLE: dict[str, tuple[list[Game], list[float | None], dict[str, float]]] = {
    "the first player always wins": (
        [("kuhn", 1, -1), ("kuhn", 1, -1), ("kuhn", 1, -1)],
        [1, -1, 0.95, -0.95, 0.9025, -0.9025],
        {"kuhn/first": 0.142625, "kuhn/second": -0.142625},
    ),
    "then it loses": (
        [("kuhn", 1, -1), ("kuhn", 1, -1), ("kuhn", -1, 1)],
        [1, -1, 0.95, -0.95, -1.0975, 1.0975],
        {"kuhn/first": 0.042625, "kuhn/second": -0.042625},
    ),
    "each game has averages of its own": (
        [("kuhn", 0.5, -0.5), ("tictactoe", -1, 1), ("kuhn", 0, 0), ("tictactoe", 0, 0)],
        [0.5, -0.5, -1, 1, -0.025, 0.025, 0.05, -0.05],
        {
            "kuhn/first": 0.02375,
            "kuhn/second": -0.02375,
            "tictactoe/first": -0.0475,
            "tictactoe/second": 0.0475,
        },
    ),
    "an invalid move is no zero-sum game": (
        [("kuhn", -1.5, 0.5), ("kuhn", 1, -1)],
        [-1.5, 0.5, 1.075, -1.025],
        {"kuhn/first": -0.02125, "kuhn/second": -0.02625},
    ),
    "draws leave them": ([("kuhn", 0, 0), ("kuhn", 0, 0)], [0, 0, 0, 0], {"kuhn/first": 0, "kuhn/second": 0}),
    "failures have none and change none": (
        [("kuhn", 1, None), ("kuhn", None, -1), ("kuhn", 1, -1)],
        [1, None, None, -1, 0.95, -0.95],
        {"kuhn/first": 0.0975, "kuhn/second": -0.0975},
    ),
}


def groups(games: list[Game]) -> list[ScoredGroup]:
    made = []
    for number, (game, *rewards) in enumerate(games):
        task = Task(id=str(number), info={"task_name": game})
        rollouts = tuple(
            Rollout(id=f"{number}/{role}", task_id=task.id, role=role, messages=(), reward=reward)
            for role, reward in zip(("first", "second"), rewards, strict=True)
        )
        made.append(ScoredGroup(group_id=str(number), env="games", task=task, rollouts=rollouts, model="m"))
    return made


@pytest.mark.parametrize("row", TABLE)
def test_advantages_and_averages(row: str) -> None:
    games, advantages, averages = TABLE[row]
    baselines = Baselines()
    assert [value for group in groups(games) for value in baselines.add(group)] == pytest.approx(advantages)
    assert baselines.values == pytest.approx(averages)


@pytest.mark.parametrize("row", TABLE)
def test_judging_takes_nothing_up(row: str) -> None:
    games, advantages, _ = TABLE[row]
    baselines = Baselines()
    for _ in range(2):
        judged = baselines.judged(tuple(groups(games)), "rae")
        found = [value for group in judged for value in group.advantages or ()]
        assert found == pytest.approx(advantages)
    assert baselines.values == {}


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_kept_averages_continue_where_a_step_began(tmp_path: Path, cut: int) -> None:
    games, advantages, averages = TABLE["each game has averages of its own"]
    baselines = Baselines()
    for step, group in enumerate(groups(games)):
        baselines.add(group)
        baselines.keep(tmp_path, step)
    # A training that is resumed from an older checkpoint rolls the later steps again.
    resumed = Baselines.before(tmp_path, cut)
    again = [value for group in groups(games)[cut:] for value in resumed.add(group)]
    assert again == pytest.approx(advantages[2 * cut :])
    assert resumed.values == pytest.approx(averages)
