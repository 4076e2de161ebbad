"""An environment whose options decide on its rewards: in a run, a mixture, a stored run and a served environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CODE = '''
from atropos_cli.sdk import Config, Environment, Reward, Task, user


class Options(Config):
    marks: tuple[str, ...] = ("plain",)


def mark(name, weight):
    return Reward(lambda task, rollout: float(len(name)), name=name, weight=weight)


class Marked(Environment):
    """Says what it is told."""

    name = "marked"
    Config = Options
    rewards = (mark("plain", 1.0),)

    @classmethod
    def rewards_for(cls, config):
        return [mark(name, float(not place)) for place, name in enumerate(config.marks)]

    def tasks(self, split):
        return [Task(id="a", prompt=(user("Say something."),))]
'''


@pytest.fixture
def marked(isolation: Path) -> str:
    Path("marked.py").write_text(CODE)
    return "./marked.py:Marked"


def rewards(folder: str) -> list[dict[str, float]]:
    lines = Path(folder, "groups.jsonl").read_text().splitlines()
    return [rollout["rewards"] for line in lines for rollout in json.loads(line)["rollouts"]]


def gen(cli: Any, *words: str) -> Any:
    got = cli("gen", *words, "--backend", "scripted", "--backend.replies", "x", "--group-size", "1", "--overwrite")
    assert got.code == 0, got.stderr
    return got


def test_a_run_and_its_scores_have_the_rewards_of_its_options(cli: Any, marked: str) -> None:
    gen(cli, marked, "-o", "run")
    assert rewards("run") == [{"plain": 5.0}]
    gen(cli, marked, "--marks", "one", "--marks", "three", "-o", "run")
    assert rewards("run") == [{"one": 3.0, "three": 5.0}]
    got = cli("score", "run", "-o", "scored.jsonl")
    assert got.code == 0, got.stderr
    (row,) = [json.loads(line) for line in Path("scored.jsonl").read_text().splitlines()]
    assert row["rollouts"][0]["rewards"] == {"one": 3.0, "three": 5.0}
    gen(cli, marked, "--marks", "one", "--marks", "three", "--reward", "three=2", "-o", "run")
    assert rewards("run") == [{"three": 5.0}]
    got = cli("gen", marked, "--reward", "three", "--backend", "scripted", "--backend.replies", "x", "-o", "none")
    assert (got.code, "there is no reward 'three'" in got.stderr) == (4, True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return None", "rewards_for() is None"),
        ("return [len]", "rewards_for()[0] is"),
        ("raise KeyError('no such mark')", "Marked.rewards_for() failed: KeyError"),
    ],
)
def test_what_is_no_reward_is_told(cli: Any, marked: str, body: str, words: str) -> None:
    made = "return [mark(name, float(not place)) for place, name in enumerate(config.marks)]"
    Path("marked.py").write_text(CODE.replace(made, body))
    got = cli("gen", marked, "--backend", "scripted", "--backend.replies", "x", "-o", "run")
    assert got.code == 4
    assert words in got.stderr


@pytest.mark.parametrize("above", ["", "    @staticmethod\n"])
def test_a_method_of_the_class_is_wanted(cli: Any, marked: str, above: str) -> None:
    assert CODE.count("    @classmethod\n") == 1
    Path("marked.py").write_text(CODE.replace("    @classmethod\n", above))
    got = cli("gen", marked, "--backend", "scripted", "--backend.replies", "x", "-o", "run")
    assert got.code == 4
    assert "write @classmethod above def rewards_for" in got.stderr


def test_members_of_a_mixture_have_those_of_their_own_options(cli: Any, marked: str) -> None:
    gen(cli, "mix", "--of", f'a={marked}:marks=["one"]', "--of", f"b={marked}", "-o", "run")
    assert sorted(map(str, rewards("run"))) == ["{'one': 3.0}", "{'plain': 5.0}"]


def test_a_stored_run_is_scored_after_the_environment_lost_an_option(cli: Any, marked: str) -> None:
    gen(cli, marked, "--marks", "plain", "-o", "run")
    Path("marked.py").write_text(CODE.replace("marks: tuple", "signs: tuple").replace("config.marks", "config.signs"))
    got = cli("score", "run", "-o", "scored.jsonl")
    assert got.code == 0, got.stderr
