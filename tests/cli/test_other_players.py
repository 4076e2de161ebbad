"""Environments with a roll_group of their own that put another player's words into a rollout: who is trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CODE = """
from atropos_cli.sdk import Environment, Rollout, Task, assistant, reward, user


@reward
def length(task, rollout):
    return float(len(rollout.text))


class Debate(Environment):
    name = "debate"
    rewards = (length,)
    roles = ("other",)

    def tasks(self, split):
        return [Task(id="a", prompt=(user("Argue."),))]

    async def roll_group(self, task, context):
        rollouts = []
        for number in range(context.group_size):
            messages = [*task.prompt]
            messages.append((await self.others(context, messages))[number % 2])
            messages.append(user("And you?"))
            messages.append((await context.generate(messages))[0].message)
            messages += [user("Last word."), assistant("No comment.")]
            rollouts.append(Rollout(id=f"{context.group_id}/{number}", task_id=task.id, messages=tuple(messages)))
        yield context.group(task, await context.score(task, rollouts))

    async def others(self, context, messages):
        other = context.models["other"]
        return [(await other.generate(messages))[0].message, await other.reply(messages)]
"""
POLICY = ("--backend", "scripted", "--backend.replies", "mine", "--backend.token-ids", "--group-size", "2")
OTHER = (
    "--role.other.backend",
    "scripted",
    "--role.other.backend-options",
    '{"replies": ["a", "b"], "token_ids": true}',
)


@pytest.fixture
def debate(isolation: Path) -> str:
    Path("debate.py").write_text(CODE)
    return "./debate.py:Debate"


def lines(path: str) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.mark.parametrize("played_by", [OTHER, ()])
def test_replies_of_a_role_are_not_trained_on_as_assistant(cli: Any, debate: str, played_by: tuple[str, ...]) -> None:
    got = cli("gen", debate, *POLICY, *played_by, "-o", "run")
    assert got.code == 0, got.stderr
    (group,) = lines("run/groups.jsonl")
    for rollout in group["rollouts"]:
        replies = [message for message in rollout["messages"] if message["role"] == "assistant"]
        assert [bool(message.get("tokens")) for message in replies] == [False, True, False]
        assert [message.get("finish_reason") for message in replies] == [None, "stop", None]
        assert replies[1]["content"] == "mine"
    got = cli("sft-gen", "run", "--min-score", "0", "-o", "rows.jsonl")
    assert got.code == 0, got.stderr
    for row in lines("rows.jsonl"):
        learned = [m["content"] for m in row["messages"] if m["role"] == "assistant" and m.get("weight", 1)]
        assert learned == ["mine"]
    got = cli("sft-gen", "run", "--min-score", "0", "--format", "tokens", "-o", "tokens.jsonl")
    assert got.code == 0, got.stderr
    for row in lines("tokens.jsonl"):
        learned = [token for token in row["labels"] if token != -100 and token < 256]
        assert bytes(learned).decode() == "mine"


def test_a_pair_does_not_part_at_the_words_of_another_player(cli: Any, isolation: Path) -> None:
    def rollout(number: int, other: str, mine: str, reward: float) -> dict[str, Any]:
        messages = [
            {"role": "user", "content": "Argue."},
            {"role": "assistant", "content": "I begin.", "finish_reason": "stop"},
            {"role": "assistant", "content": other},
            {"role": "user", "content": "And you?"},
            {"role": "assistant", "content": mine, "finish_reason": "stop"},
        ]
        return {"id": f"g/{number}", "task_id": "a", "messages": messages, "reward": reward}

    def group(name: str, *others: str) -> dict[str, Any]:
        rollouts = [rollout(0, others[0], "good", 1.0), rollout(1, others[-1], "bad", 0.0)]
        task = {"id": name, "prompt": [{"role": "user", "content": "Argue."}]}
        return {"group_id": name, "env": "debate", "task": task, "rollouts": rollouts}

    Path("groups.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in (group("same", "words"), group("differ", "some", "others")))
    )
    got = cli("dpo-gen", "groups.jsonl", "-o", "pairs.jsonl", "--json")
    assert got.code == 0, got.stderr
    (row,) = lines("pairs.jsonl")
    assert (row["task"], [message["content"] for message in row["chosen"]]) == ("debate/same", ["good"])
    assert got.json["left_out_pairs"]["environment_differs"] == 1
