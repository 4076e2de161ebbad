"""An environment of ours in a script with TRL's own GRPOTrainer: two real steps, and rewards as `score` gives them."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import command_line
from trl_support import make_tiny

from atropos_cli.errors import UsageError

Cli = Callable[..., Any]


@pytest.fixture
def ours() -> Callable[..., Any]:
    """ours("arithmetic", {...}) -> ForTRL."""
    from atropos_trl.outside import ForTRL

    return ForTRL


def scored(capfd: Any, folder: Path, played: list[tuple[str, str]]) -> list[float]:
    """What `atropos score` says of (task, reply)."""
    groups = []
    for number, (task, reply) in enumerate(played):
        told = json.loads(task)
        messages = [*told["prompt"], {"role": "assistant", "content": reply}]
        rollout = {"id": f"g-{number}/0", "task_id": told["id"], "messages": messages}
        groups.append({"group_id": f"g-{number}", "env": "arithmetic", "task": told, "rollouts": [rollout]})
    source = folder / "groups.jsonl"
    source.write_text("".join(f"{json.dumps(group)}\n" for group in groups))
    program = command_line(capfd)
    done = next(program)(
        "score", source, "--env", "arithmetic", "--reward", "arithmetic_exact", "-o", folder / "scored.jsonl"
    )
    assert done.code == 0, done.stderr
    rows = [json.loads(line) for line in (folder / "scored.jsonl").read_text().splitlines()]
    return [row["rollouts"][0]["reward"] for row in rows]


@pytest.mark.usefixtures("atropos_clean")
def test_two_steps_of_grpo_with_the_rewards_of_score(
    ours: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from trl import GRPOConfig, GRPOTrainer

    small = make_tiny(tmp_path / "small", max_position_embeddings=1024)
    environment = ours("arithmetic", {"difficulty": "easy"})
    seen: list[tuple[str, str]] = []
    given: list[float | None] = []

    def reward(completions: list[Any], task: list[str], **columns: Any) -> list[float | None]:
        rewards: list[float | None] = environment.reward(completions, task, **columns)
        seen.extend((one, completion[-1]["content"]) for one, completion in zip(task, completions, strict=True))
        given.extend(rewards)
        return rewards

    config = GRPOConfig(
        str(tmp_path / "out"),
        num_generations=2,
        max_completion_length=4,
        per_device_train_batch_size=4,
        max_steps=2,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
    )
    trainer = GRPOTrainer(model=str(small), reward_funcs=reward, args=config, train_dataset=environment.dataset(4))
    trainer.train()
    assert trainer.state.global_step == 2
    assert len(given) == 8
    right = [(task, f"Answer: {json.loads(task)['answer']}") for task, _ in seen[:2]]
    ended = environment.reward([[{"role": "assistant", "content": text}] for _, text in right], [t for t, _ in right])
    assert ended == [1.0, 1.0]
    assert scored(capfd, tmp_path, [*seen, *right]) == [*given, *ended]


@pytest.mark.usefixtures("atropos_clean")
def test_tools_are_methods_that_trl_can_describe_and_call(ours: Any) -> None:
    from transformers.utils import get_json_schema

    environment = ours("tools-demo")
    first, second = environment.dataset(2)["task"]
    played = environment.factory()
    schema = get_json_schema(played.calculate)["function"]
    assert schema["parameters"]["required"] == ["expression"]
    assert schema["parameters"]["properties"]["expression"]["type"] == "string"
    assert played.reset(task=first) is None
    assert played.calculate(expression="2 * 21") == "42"
    assert "no tool" not in played.calculate(expression="1 +")
    answer = [{"role": "assistant", "content": f"Answer: {json.loads(first)['answer']}"}]
    (right,) = environment.reward([answer], [first], environments=[played])
    played.reset(task=first)
    (wrong,) = environment.reward([[{"role": "assistant", "content": "no idea"}]], [first], environments=[played])
    assert right > wrong
    assert played.calculate(expression="1") == "The episode is over."
    played.reset(task=second)
    played.reset(task=first)  # a batch that was broken off: its episode is closed


@pytest.mark.usefixtures("atropos_clean")
def test_a_conversation_is_a_tool_and_a_failure_no_reward(ours: Any, env_file: str) -> None:
    environment = ours(f"{env_file}:TwoTurns")
    (task,) = environment.dataset(1)["task"]
    played = environment.factory()
    played.reset(task=task)
    assert played.act(text="one")
    (value,) = environment.reward([[{"role": "assistant", "content": "22"}]], [task], environments=[played])
    assert isinstance(value, float)
    assert environment.reward([[{"role": "assistant", "content": "x"}]], ["not a task"]) == [None]


ODD = '''
from atropos_cli.sdk import Environment, Episode, Task, group_reward, reward, user
from atropos_cli.sdk.tools import ToolEnvironment

HALF = chr(0xD83D)


@group_reward
def shortest(task, rollouts):
    """1 for the shortest replies of a group."""
    least = min(len(rollout.text) for rollout in rollouts)
    return [float(len(rollout.text) == least) for rollout in rollouts]


class Pair(Environment):
    "Two tasks, and a reward that compares."

    name = "pair"
    rewards = (shortest,)

    def tasks(self, split):
        return [Task(id=f"t{i}", prompt=(user(f"go {i} {HALF}"),), info={"half": HALF}) for i in range(2)]


@reward
def calls(task, rollout):
    return float(sum(rollout.info["tools_used"].values()))


def look(what: str) -> str:
    return what


class Look(ToolEnvironment):
    name = "look"
    rewards = (calls,)
    tools = (look,)

    def tasks(self, split):
        return [Task(id="a", prompt=(user("Look."),))]


@reward
def one(task, rollout):
    return 1.0


class Shy(Episode):
    def __init__(self, task):
        self.task = task

    def reset(self):
        if self.task.id == "b":
            raise OSError("no place is free")
        return [user("Talk.")]

    def step(self, reply):
        return [user("More.")]


class Shying(Environment):
    name = "shy"
    rewards = (one,)

    def tasks(self, split):
        return [Task(id="a")]

    def episode(self, task):
        return Shy(task)
'''


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    path = tmp_path / "odd.py"
    path.write_text(ODD)
    return path


def said(*texts: str) -> list[Any]:
    return [[{"role": "assistant", "content": text}] for text in texts]


@pytest.mark.usefixtures("atropos_clean")
def test_rows_are_the_tasks_once_and_rewards_compare_those_of_a_task(ours: Any, odd: Path) -> None:
    pair = ours(f"{odd}:Pair")
    rows = pair.dataset(10)
    assert [json.loads(task)["id"] for task in rows["task"]] == ["t0", "t1"]
    assert rows["prompt"][1][0]["content"] == "go 1 \ufffd"
    first, second = rows["task"]
    values = pair.reward(said("abc", "a", "abcd", "abcd"), [first, first, second, second])
    assert values == [0.0, 1.0, 1.0, 1.0]
    assert pair.reward.__name__ == "pair"
    with pytest.raises(UsageError, match="at least one row"):
        pair.dataset(0)


@pytest.mark.usefixtures("atropos_clean")
def test_rows_of_another_environment_have_no_reward(ours: Any, odd: Path) -> None:
    pair, look = ours(f"{odd}:Pair"), ours(f"{odd}:Look")
    rows = [pair.dataset(1)[0], look.dataset(1)[0]]
    tasks, envs = [row["task"] for row in rows], [row["env"] for row in rows]
    assert pair.reward(said("a", "b"), tasks, env=envs) == [1.0, None]
    games = [pair.factory(), look.factory()]
    for game, task in zip(games, tasks, strict=True):
        game.reset(task=task)
    games[1].look(what="x")
    assert pair.reward(said("a", "b"), tasks, environments=games) == [1.0, None]
    assert look.reward(said("a", "b"), tasks, environments=games) == [None, 1.0]
    assert look.reward(said("a", "b"), tasks, environments=games) == [None, 1.0]  # who asks again is told the same


@pytest.mark.usefixtures("atropos_clean")
def test_what_is_used_wrongly_is_told(ours: Any, odd: Path, caplog: pytest.LogCaptureFixture) -> None:
    look, shy = ours(f"{odd}:Look"), ours(f"{odd}:Shying")
    (task,) = look.dataset(1)["task"]
    with pytest.raises(UsageError, match="has tools") as told:
        look.reward(said("a"), [task])
    assert "environment_factory" in "".join(traceback.format_exception(told.value))
    with pytest.raises(UsageError, match="no column `task`"):
        look.reward(said("a"), prompts=["x"])
    (task,) = shy.dataset(1)["task"]
    assert shy.reward(said("a", "b"), [task, task]) == [1.0, 1.0]
    assert [record.message for record in caplog.records if "does not end with the first reply" in record.message]
    played = shy.factory()
    played.reset(task=task.replace('"id": "a"', '"id": "b"'))
    assert played.act(text="x") == "The episode is over."
    assert shy.reward(said("a"), [task], environments=[played]) == [None]
    assert "no place is free" in caplog.text
