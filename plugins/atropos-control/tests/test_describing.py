"""Spaces in words, and actions read from replies."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from atropos_control.describing import Actions, check_observations, known, numbers
from atropos_control.environment import short_name
from gymnasium import spaces

from atropos_cli.sdk import ConfigError

LAKE = Actions(spaces.Discrete(4), ("left", "down", "right", "up"))
PLAIN = Actions(spaces.Discrete(3, start=-1))
FORCE = Actions(spaces.Box(-2.0, 2.0, (2,), np.float32))


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        ("Action: right", 2),
        ("I go.\n**Action:** Right.", 2),
        ("action = UP", 3),
        ("right", 2),
        ("Down is a hole, up is the wall.\nSo: right", 2),
        ("<think>Action: left</think>\nAction: down", 1),
        ("Action: left\nNo, better:\nAction: down\nDone.", 1),
        ("Action: `left`", 0),
        ("Action: go left now", 0),
        ("Azione: \nAction：\nup", 3),
        ("left, down, right or up?", None),
        ("Action: left or right", None),
        ("Action: upwards", None),
        ("Action: jump", None),
        ("<think>Action: left", None),
        ("", None),
        ("\n \n", None),
    ],
)
def test_a_named_action(reply: str, wanted: int | None) -> None:
    assert LAKE.read(reply) == wanted


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [("Action: -1", -1), ("Action: 1.0", 1), ("1", 1), ("Action: 2", None), ("0 or 1", None), ("Action: 0.5", None)],
)
def test_a_numbered_action(reply: str, wanted: int | None) -> None:
    assert PLAIN.read(reply) == wanted
    assert "from -1 to 1" in PLAIN.words


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        ("Action: 0.5, -1e0", [0.5, -1.0]),
        ("Action: [9, -9]", [2.0, -2.0]),
        ("Action: .5", None),
        ("Action: 1, 2, 3", None),
        ("Action: 1e999, 0", None),
    ],
)
def test_numbers_as_an_action(reply: str, wanted: list[float] | None) -> None:
    found = FORCE.read(reply)
    assert (None if found is None else found.tolist()) == wanted
    assert found is None or FORCE.space.contains(found)


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([2, 2]), spaces.Box(0, 1, (2, 2)), spaces.Box(0, 1, (65,))])
def test_actions_without_words_are_refused(space: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        Actions(space)


def test_pictures_are_refused() -> None:
    check_observations(spaces.Dict({"at": spaces.Box(0, 1, (3,)), "of": spaces.Tuple((spaces.Discrete(2),))}))
    with pytest.raises(ConfigError, match="too large for words"):
        check_observations(spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 255, (8, 8, 3), np.uint8))))


def test_observations_of_several_parts() -> None:
    value = {"at": np.array([0.123456, 2.0], np.float32), "of": (1, "text")}
    assert numbers(value) == "at: 0.1235, 2\nof: 1\ntext"
    assert numbers(np.array([1.0, 2.0]), ["x", "y"]) == "x: 1\ny: 2"


@pytest.mark.parametrize(
    ("full", "name"),
    [("FrozenLake-v1", "FrozenLake"), ("my.module:lab/Maze-Big-v12", "Maze-Big")],
)
def test_the_name_in_an_id(full: str, name: str) -> None:
    assert short_name(full) == name


def test_names_of_actions_fit_the_environments() -> None:
    import gymnasium

    table = tomllib.loads(files("atropos_control").joinpath("games.toml").read_text("utf-8"))
    newest = {spec.name: spec for spec in gymnasium.registry.values() if spec.namespace is None}
    for name, facts in table.items():
        env = gymnasium.make(newest[name].id)
        assert len(facts["actions"]) == env.action_space.n, name
        if "observation" in facts:
            assert len(facts["observation"]) == env.observation_space.shape[0], name
        env.close()
    assert known("Nothing") == {}
