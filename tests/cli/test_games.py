"""Games of several players, from the command line: one rollout a side, advantages by role, resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ENVIRONMENT = '''
from atropos_cli.sdk import Game, GameEnvironment, Task, reward, user


@reward
def outcome(task, rollout):
    return float(rollout.info["outcome"])


class Nim(Game):
    """Take 1 to 3; who takes the last one wins. A wrong move loses."""

    players = ("first", "second")

    def __init__(self, task):
        self.left = self.start = task.info["left"]
        self.moves = 0
        self.won = None

    def reset(self):
        return {"first": [user(f"You begin. {self.left} are left.")], "second": [user("The other one begins.")]}

    def turn(self):
        return self.players[self.moves % 2]

    async def step(self, player, reply):
        other = self.players[(self.moves + 1) % 2]
        self.moves += 1
        text = reply.text.strip()
        if text not in ("1", "2", "3") or int(text) > self.left:
            self.won = other
            return None
        self.left -= int(text)
        if self.left == 0:
            self.won = player
            return None
        return {other: [user(f"The other one took {text}; {self.left} are left.")]}

    def result(self, player):
        return {"outcome": 1.0 if player == self.won else -1.0, "moves": self.moves}


class NimEnvironment(GameEnvironment):
    name = "nim"
    rewards = (outcome,)

    def tasks(self, split):
        return [Task(id=f"nim-{left}", info={"left": left, "task_name": "nim"}) for left in (4, 5, 6, 7)]

    def game(self, task):
        return Nim(task)
'''

PLAYER = """
import re


def reply(messages, request):
    left = int(re.search(r"(\\d+) are left", messages[-1].text)[1])
    return str(left % 4 or 1)


def broken(messages, request):
    return "pass"
"""

FLAGS = ("--backend", "scripted", "--backend.token-ids", "--group-size", "2", "--workers", "1")
PERFECT = ("--backend.function", "./player.py:reply")


@pytest.fixture
def nim(isolation: Path) -> str:
    Path("nim.py").write_text(ENVIRONMENT)
    Path("player.py").write_text(PLAYER)
    return "./nim.py:NimEnvironment"


def groups(run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(run, "groups.jsonl").read_text().splitlines()]


def test_each_side_is_a_rollout_with_its_own_tokens(cli: Any, nim: str) -> None:
    assert cli("gen", nim, *FLAGS, *PERFECT, "-o", "r").code == 0
    first = groups("r")[0]
    sides = first["rollouts"]
    assert [side["role"] for side in sides] == ["first", "second", "first", "second"]
    assert [side["reward"] for side in sides] == [-1.0, 1.0, -1.0, 1.0]  # 4 are lost for who begins
    assert len({side["id"] for side in sides}) == 4
    spoken = [[message["content"] for message in side["messages"]] for side in sides[:2]]
    assert spoken[0] == ["You begin. 4 are left.", "1"]
    assert spoken[1] == ["The other one begins.", "The other one took 1; 3 are left.", "3"]
    for side in sides:
        replies = [message for message in side["messages"] if message["role"] == "assistant"]
        assert all(message["tokens"]["mask"] is True for message in replies)
        others = [m for m in side["messages"] if m["role"] != "assistant" and "tokens" in m]
        assert all(message["tokens"]["mask"] is False for message in others)
    assert cli("sft-gen", "r", "--format", "tokens", "-o", "rows.jsonl").code == 0
    row = json.loads(Path("rows.jsonl").read_text().splitlines()[0])
    assert (
        bytes(token for token, label in zip(row["input_ids"], row["labels"], strict=True) if 0 <= label < 256) == b"3"
    )


SHOWN = """
from nim import Nim, NimEnvironment
from atropos_cli.sdk import Environment, Episode, Task, assistant, reward, user


class Shown(Nim):
    "Shows a player what the other one said as it came, and an example."

    async def step(self, player, reply):
        seen = await super().step(player, reply)
        return seen and {to: [reply, assistant("9"), *messages] for to, messages in seen.items()}

    def close(self):
        raise SystemExit(3)


class ShownEnvironment(NimEnvironment):
    def game(self, task):
        return Shown(task)


class Again(Episode):
    "The same to one player: an example, and its own reply again."

    def reset(self):
        return [user("Say 3."), assistant("9"), user("Once more.")]

    def step(self, reply):
        if len(reply.text) > 1:
            return None
        self.said = reply
        return [user("You said"), reply, user("Say 33.")]

    async def close(self):
        raise SystemExit(3)


@reward
def one(task, rollout):
    return 1.0


class AgainEnvironment(Environment):
    name = "again"
    rewards = (one,)

    def tasks(self, split):
        return [Task(id="one")]

    def episode(self, task):
        return Again()


def reply(messages, request):
    return "33" if messages[-1].text == "Say 33." else "3"
"""


def learned(row: dict[str, Any]) -> bytes:
    pairs = zip(row["input_ids"], row["labels"], strict=True)
    return bytes(token for token, label in pairs if 0 <= label < 256)


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("which", ["ShownEnvironment", "AgainEnvironment"])
def test_what_an_environment_puts_into_the_mouth_is_not_learned(cli: Any, nim: str, which: str, tokens: bool) -> None:
    """Another player's reply, an own one once more, an example: none of them was sampled there."""
    Path("shown.py").write_text(SHOWN)
    player = PERFECT if which == "ShownEnvironment" else ("--backend.function", "./shown.py:reply")
    flags = [flag for flag in FLAGS if tokens or flag != "--backend.token-ids"]
    made = cli("gen", f"./shown.py:{which}", *flags, *player, "-o", "r")
    assert made.code == 0, made.stderr
    sides = [side for group in groups("r") for side in group["rollouts"]]
    assert not any("failure" in side for side in sides)
    for side in sides:
        ids: list[int] = []
        for message in side["messages"]:
            span = message.get("tokens", {"ids": [], "mask": False})
            if span["mask"]:
                assert message["finish_reason"] == "stop"
                assert bytes(i for i in span["ids"] if i < 256).decode() == message["content"]
            ids += span["ids"]
        if tokens:  # each message once, and the last one ends it
            text = bytes(i for i in ids if i < 256).decode()
            assert text.count("You said") <= 1
            assert text.endswith(side["messages"][-1]["content"])
    assert cli("sft-gen", "r", "-o", "rows.jsonl", "--select", "all").code == 0
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    said = {
        tuple(m["content"] for m in row["messages"] if m["role"] == "assistant" and m.get("weight", 1)) for row in rows
    }
    assert said == ({("3", "33")} if which == "AgainEnvironment" else said)
    assert all("9" not in texts for texts in said)
    if tokens:
        assert cli("sft-gen", "r", "--format", "tokens", "-o", "tokens.jsonl", "--select", "all").code == 0
        token_rows = [json.loads(line) for line in Path("tokens.jsonl").read_text().splitlines()]
        assert {learned(row) for row in token_rows} == {"".join(texts).encode() for texts in said}


def test_pairs_are_made_of_one_side(cli: Any, nim: str) -> None:
    """The sides see other messages, and one of them may win by its seat alone."""
    Path("varied.py").write_text("def reply(messages, request):\n    return str(1 + request.seed % 3)\n")
    assert (
        cli("gen", nim, *FLAGS[:2], "--group-size", "6", "--backend.function", "./varied.py:reply", "-o", "r").code == 0
    )
    sides = {side["id"]: side for group in groups("r") for side in group["rollouts"]}
    made = cli("dpo-gen", "r", "-o", "pairs.jsonl", "--policy", "all", "--json")
    assert made.code == 0, made.stderr
    rows = [json.loads(line) for line in Path("pairs.jsonl").read_text().splitlines()]
    assert "first" in {sides[row["rollout_chosen"]]["role"] for row in rows}  # whom all games ask the same
    for row in rows:
        chosen, rejected = sides[row["rollout_chosen"]], sides[row["rollout_rejected"]]
        assert chosen["role"] == rejected["role"]
        assert chosen["reward"] > rejected["reward"]


def expected(stored: list[dict[str, Any]], baselines: dict[str, float]) -> list[list[float]]:
    """The rule once more: the reward less the average before it, which then moves by a twentieth."""
    found = []
    for group in stored:
        values = []
        for side in group["rollouts"]:
            before = baselines.get(side["role"], 0.0)
            values.append(side["reward"] - before)
            baselines[side["role"]] = 0.95 * before + 0.05 * side["reward"]
        found.append(values)
    return found


def test_advantages_by_role_follow_the_averages_so_far(cli: Any, nim: str) -> None:
    assert cli("gen", nim, *FLAGS, *PERFECT, "--advantage", "rae", "-o", "r").code == 0
    stored = groups("r")
    assert stored[0]["advantages"][:3] == pytest.approx([-1.0, 1.0, -1.0 + 0.05])
    for group, values in zip(stored, expected(stored, {}), strict=True):
        assert group["advantages"] == pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize("lost", [False, True])
def test_a_resumed_run_keeps_the_averages(cli: Any, nim: str, lost: bool) -> None:
    rae = (*FLAGS, *PERFECT, "--advantage", "rae")
    assert cli("gen", nim, *rae, "-o", "whole").code == 0
    assert cli("gen", nim, *rae, "--limit", "2", "-o", "parts").code == 0
    if lost:
        Path("parts/totals.json").unlink()
    assert cli("gen", nim, *rae, "-o", "parts", "--resume").code == 0
    whole, parts = ([group["advantages"] for group in groups(run)] for run in ("whole", "parts"))
    assert whole == parts


def test_the_mean_of_a_role_is_its_own(cli: Any, nim: str) -> None:
    assert cli("gen", nim, *FLAGS, *PERFECT, "--advantage", "role_mean", "--limit", "1", "-o", "r").code == 0
    assert groups("r")[0]["advantages"] == [0.0, 0.0, 0.0, 0.0]


def test_an_opponent_with_a_model_of_its_own_is_not_trained(cli: Any, nim: str) -> None:
    options = json.dumps({"function": "./player.py:broken"})
    opponent = ("--role.second.backend", "scripted", "--role.second.backend-options", options)
    assert cli("gen", nim, *FLAGS, *PERFECT, *opponent, "-o", "r").code == 0
    sides = groups("r")[0]["rollouts"]
    assert [(side["role"], side["reward"]) for side in sides] == [("first", 1.0), ("first", 1.0)]
    summary = json.loads(Path("r/summary.json").read_text())
    assert summary["usage"]["scripted (second)"]["requests"] == 8


def test_an_error_of_a_game_fails_both_sides_of_it(cli: Any, nim: str) -> None:
    broken = ENVIRONMENT.replace("self.left -= int(text)", "self.left -= int(text) // (self.start != 6)")
    assert broken != ENVIRONMENT
    Path("nim.py").write_text(broken)
    assert cli("gen", nim, *FLAGS, *PERFECT, "--max-failure-rate", "0.9", "-o", "r").code == 0
    summary = json.loads(Path("r/summary.json").read_text())
    assert summary["failures"] == {"environment:ZeroDivisionError": 4}


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ('players = ("first", "second")', 'players = ("first", "first")', "not a list of different names"),
        ("return Nim(task)", "return None", "returned nothing, not a Game object"),
        ('"second": [user("The other', '"third": [user("The other', "reset() said 'third', and the players are first"),
        ('[user("The other one begins.")]', '"You wait."', "not a list of messages"),
        ("return self.players[self.moves % 2]", 'return "third"', "turn() said 'third'"),
        ("return {other: [user(", "return [user(", "not messages by player"),
        ("return {other: [user(", "return {player: [user(", "who has seen nothing to reply to"),
        ('return {"outcome": 1.0 if player == self.won else -1.0, "moves": self.moves}', "return None", "result()"),
    ],
)
def test_mistakes_of_a_game_are_told(cli: Any, nim: str, right: str, wrong: str, words: str) -> None:
    source = ENVIRONMENT.replace(right, wrong)
    if words == "who has seen nothing to reply to":
        source = source.replace('"second": [user("The other one begins.")]', '"second": []')
    if wrong == "return [user(":
        source = source.replace('are left.")]}', 'are left.")]')
    assert source != ENVIRONMENT
    Path("nim.py").write_text(source)
    result = cli("gen", nim, *FLAGS, *PERFECT, "--limit", "1", "-o", "r")
    assert result.code != 0
    assert words in result.stderr


def test_a_game_needs_a_player_that_is_trained(cli: Any, nim: str) -> None:
    Path("nim.py").write_text(ENVIRONMENT.replace("self.left -= int(text)", "raise ValueError"))
    options = json.dumps({"function": "./player.py:reply"})
    roles = [
        (f"--role.{name}.backend", "scripted", f"--role.{name}.backend-options", options)
        for name in ("first", "second")
    ]
    result = cli("gen", nim, *FLAGS, *PERFECT, *roles[0], *roles[1], "--limit", "1", "-o", "r")
    assert result.code != 0
    assert "each player has a model of its own" in result.stderr


def test_the_policy_plays_a_side_with_the_sampling_of_its_role(cli: Any, nim: str) -> None:
    said = 'open("asked.txt", "a").write(f"{messages[0].text[:3]} {request.sampling.temperature}\\\\n")\n    left ='
    Path("player.py").write_text(PLAYER.replace("left =", said.replace("\\\\", "\\"), 1))
    assert cli("gen", nim, *FLAGS, *PERFECT, "--role.second.temperature", "0.25", "--limit", "1", "-o", "r").code == 0
    assert {*Path("asked.txt").read_text().splitlines()} == {"You 1.0", "The 0.25"}


def test_a_game_is_checked_without_a_model(cli: Any, nim: str) -> None:
    result = cli("env", "check", nim)
    assert result.code == 0, result.stdout


def test_a_check_finds_a_player_that_is_none(cli: Any, nim: str) -> None:
    Path("nim.py").write_text(ENVIRONMENT.replace('"second": [user("The other', '"third": [user("The other'))
    result = cli("env", "check", nim)
    assert result.code != 0
    assert "'third' is none of the players: first, second" in result.stdout
