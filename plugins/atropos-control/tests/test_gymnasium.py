"""Environments of Gymnasium under the engine, by the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import EnvironmentContract
from atropos_control.environment import environment_class

from atropos_cli.sdk import ConfigError

RIGHT, DOWN = "Action: right", "Action: down"
PATH = [DOWN, DOWN, RIGHT, RIGHT, DOWN, RIGHT]
"""A way over the lake of 4 rows that is not slippery."""


class TestLake(EnvironmentContract):
    environment = environment_class("FrozenLake-v1")
    replies = (RIGHT, DOWN, "neither left nor right")


def groups(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "groups.jsonl").read_text().splitlines()]


def gen(cli: Any, folder: Path, name: str, replies: list[str], *options: str) -> list[dict[str, Any]]:
    words = [word for reply in replies for word in ("--backend.replies", reply)]
    done = cli(
        "gen", f"gymnasium:{name}", "--backend", "scripted", *words, "-o", str(folder), "--workers", "1", *options
    )
    assert done.code == 0, done.stderr
    return groups(folder)


def test_the_way_over_the_lake_earns_1(cli: Any, tmp_path: Path) -> None:
    options = ("--limit", "1", "--group-size", "1", "--no-is-slippery")
    (group,) = gen(cli, tmp_path / "lake", "FrozenLake-v1", PATH, *options)
    (rollout,) = group["rollouts"]
    assert rollout["reward"] == 1.0
    assert rollout["info"] == {"return": 1.0, "steps": 6, "invalid": 0, "ended": "terminated"}
    seen = [message["content"] for message in rollout["messages"] if message["role"] == "user"]
    assert "SFFF\nFHFH\nFFFH\nHFFG" in seen[0]
    assert [text.splitlines()[-1] for text in (seen[0], seen[2])] == [
        "You are at row 0, column 0, both counted from 0.",
        "You are at row 2, column 0, both counted from 0.",
    ]


def test_giving_up_is_not_better_than_random_play(cli: Any, tmp_path: Path) -> None:
    options = ("--limit", "1", "--group-size", "2", "--max-steps", "30")
    (group,) = gen(cli, tmp_path / "taxi", "Taxi-v4", ["I do not know."], *options)
    assert [rollout["info"]["ended"] for rollout in group["rollouts"]] == ["invalid"] * 2
    assert all(rollout["reward"] <= -30 for rollout in group["rollouts"])
    (pole,) = gen(cli, tmp_path / "pole", "CartPole-v1", ["left", "?", "?", "?"], "--limit", "1", "--group-size", "1")
    assert pole["rollouts"][0]["reward"] == 1.0


def test_a_limit_cuts_the_episode_off(cli: Any, tmp_path: Path) -> None:
    options = ("--limit", "1", "--group-size", "2", "--max-steps", "3")
    (group,) = gen(cli, tmp_path / "cliff", "CliffWalking-v1", ["Action: up"], *options)
    for rollout in group["rollouts"]:
        assert (rollout["stop_reason"], rollout["info"]["ended"]) == ("step_limit", "truncated")
        assert rollout["reward"] == -3.0


def test_rows_for_training(cli: Any, tmp_path: Path) -> None:
    gen(
        cli, tmp_path / "lake", "FrozenLake-v1", [*PATH, RIGHT], "--limit", "3", "--group-size", "2", "--no-is-slippery"
    )
    assert cli("sft-gen", str(tmp_path / "lake"), "-o", str(tmp_path / "rows.jsonl")).code == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows
    assert all(row["messages"][-1]["role"] == "assistant" for row in rows)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("FrozenLake-v99", "no environment 'FrozenLake-v99'"),
        ("Frozen", "no environment 'Frozen'"),
        ("nowhere_at_all:X-v1", "no environment"),
        ("CarRacing-v3", "CarRacing"),
    ],
)
def test_what_cannot_be_played_is_said_before_the_run(cli: Any, tmp_path: Path, name: str, said: str) -> None:
    words = ("--backend", "scripted", "--backend.replies", "x", "-o", str(tmp_path / "run"), "--limit", "1")
    done = cli("gen", f"gymnasium:{name}", *words)
    assert done.code == 3
    assert said in done.stderr
    assert not (tmp_path / "run" / "groups.jsonl").exists()


@pytest.mark.parametrize("name", ["odd:FrozenLakeOfMine-v0", "odd:mine/Taxi-v0"])
def test_an_environment_that_is_called_like_a_known_one_is_not_described_as_that(
    cli: Any, tmp_path: Path, name: str
) -> None:
    (group,) = gen(cli, tmp_path / "run", name, ["Action: 1"], "--limit", "1", "--group-size", "1")
    rollout = group["rollouts"][0]
    assert rollout["reward"] == 5.0
    assert f"You control the environment {name} of Gymnasium." in json.dumps(rollout["messages"][:2])


def test_what_a_wrapper_shows_is_what_is_described(cli: Any, tmp_path: Path) -> None:
    options = ("--limit", "1", "--group-size", "1", "--wrappers", "FlattenObservation", "--max-steps", "2")
    (group,) = gen(cli, tmp_path / "run", "FrozenLake-v1", ["Action: up"], *options)
    first = next(message["content"] for message in group["rollouts"][0]["messages"] if message["role"] == "user")
    assert "1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0" in first


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('it is broken')", "RuntimeError: it is broken"),
        ("import sys; sys.exit(5)", "it called sys.exit(5)"),
        ("def (", "SyntaxError"),
        ("import not_there_at_all", "No module named 'not_there_at_all'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_said(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    (tmp_path / "registers_nothing.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    done = cli("gen", "gymnasium:registers_nothing:X-v0", "--backend", "scripted", "--backend.replies", "x")
    assert (done.code, said in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize(("name", "hint"), [("CartPole", "CartPole-v0, CartPole-v1"), (".:X-v0", "registry")])
def test_names_without_a_version_or_a_module_get_a_hint(cli: Any, name: str, hint: str) -> None:
    done = cli("gen", f"gymnasium:{name}", "--backend", "scripted", "--backend.replies", "x")
    assert (done.code, hint in done.stderr) == (3, True), done.stderr


def test_the_prefix_alone_names_no_environment() -> None:
    with pytest.raises(ConfigError, match="no environment"):
        environment_class("NoSuchThing-v0")
