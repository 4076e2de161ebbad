"""GSM8K and MATH-500, rows of ours and the real files: gold answers earn full marks through the named rewards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from atropos_authoring import run_environment
from atropos_authoring.helpers import ReplyFunction
from atropos_datasets.ready import Gsm8k, Math500
from case_tables import OWN_DATA, real_data

from atropos_cli.sdk import Message


def golds(path: Path, question: str, reply: str) -> ReplyFunction:
    """A player who knows the field `reply` of the row with this question."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    known = {row[question]: row[reply] for row in rows}

    def play(messages: object) -> str:
        assert isinstance(messages, list | tuple)
        last: Message = messages[-1]
        return str(known[last.text])

    return play


@pytest.mark.parametrize("real", [False, True], ids=["own", "real"])
def test_gsm8k_gold_solutions_earn_full_marks(tmp_path: Path, real: bool) -> None:
    path = real_data("gsm8k/test.jsonl") if real else OWN_DATA / "gsm8k.jsonl"
    groups = run_environment(
        Gsm8k,
        folder=tmp_path,
        replies=golds(path, "question", "answer"),
        config={"path": str(path)},
        limit=2000,
        group_size=1,
        split="test",
        rewards=("gsm8k", "gsm8k_strict=0"),
    )
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert len(rollouts) == (1319 if real else 8)
    assert [r.task_id for r in rollouts if r.reward != 1.0 or r.rewards["gsm8k_strict"] != 1.0] == []
    environment = Gsm8k(Gsm8k.Config(path=str(path)))
    assert [task.id for task in environment.tasks("test") if environment.validate(task) is False] == []


@pytest.mark.parametrize("real", [False, True], ids=["own", "real"])
def test_math500_gold_solutions_earn_full_marks(tmp_path: Path, real: bool) -> None:
    pytest.importorskip("math_verify")
    path = real_data("math_rollouts/math500_test.jsonl") if real else OWN_DATA / "math.jsonl"
    groups = run_environment(
        Math500,
        folder=tmp_path,
        replies=golds(path, "problem", "solution"),
        config={"path": str(path), "system_prompt": ""},
        limit=500,
        group_size=1,
        split="test",
    )
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert len(rollouts) == (500 if real else 12)
    assert [(r.task_id, r.failure) for r in rollouts if r.reward != 1.0] == []
    assert {"subject", "level"} <= set(groups[0].task.info)
    assert groups[0].task.id.startswith("test/")


def test_wrong_answers_earn_nothing(tmp_path: Path) -> None:
    path = OWN_DATA / "gsm8k.jsonl"
    groups = run_environment(
        Gsm8k, folder=tmp_path, replies=("#### -1",), config={"path": str(path)}, limit=20, split="test"
    )
    assert {rollout.reward for group in groups for rollout in group.rollouts} == {0.0}


def test_few_shot_examples_are_never_the_row_itself(tmp_path: Path) -> None:
    path = OWN_DATA / "gsm8k.jsonl"
    environment = Gsm8k(Gsm8k.Config(path=str(path), few_shot=4))
    found = environment.tasks("test")
    for n in (0, 3, 4, 5, 7):
        texts = [message.text for message in found[n].prompt]
        assert len(texts) == 10
        assert texts.count(texts[-1]) == 1
