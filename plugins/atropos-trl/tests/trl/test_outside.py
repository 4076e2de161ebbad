"""An environment of ours in a script with TRL's own GRPOTrainer: two real steps, and rewards as `score` gives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import command_line
from trl_support import make_tiny

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
