"""The two-player game in the real engine: who gets what, and which programs are void."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import run_environment
from atropos_code import prediction
from atropos_code.freeform import CodeExecEnvironment, request
from atropos_code.game import CodeGameEnvironment
from atropos_code.sandbox import Sandbox

from atropos_cli.cli import app
from atropos_cli.sdk import Message, ScoredGroup, token_sequences


def game(folder: Path, program: str, answers: Sequence[str], **config: Any) -> list[ScoredGroup]:
    """One task with two proposers of the same program; the opponents give the answers in turn."""
    given = iter(answers * 10)

    def reply(messages: Sequence[Message]) -> str:
        return next(given) if "What does this program print?" in messages[-1].text else f"```python\n{program}\n```"

    options = {"predictions": len(answers), **config}
    return run_environment(CodeGameEnvironment, folder=folder, replies=reply, config=options, limit=1, group_size=2)


def test_groups_and_rewards(tmp_path: Path) -> None:
    groups = game(tmp_path / "run", "print(6 * 7)", ["```output\n42\n```", "```output\n41\n```"])
    assert [group.turn for group in groups] == [0, 1, 2]
    assert [group.last for group in groups] == [False, False, True]
    assert [rollout.reward for rollout in groups[0].rollouts] == [0.0, 0.0]
    for group in groups[1:]:
        assert sorted(rollout.reward or 0.0 for rollout in group.rollouts) == [-1.0, 1.0]
        assert all("print(6 * 7)" in rollout.messages[-2].text for rollout in group.rollouts)
        assert not any("42" in rollout.messages[-2].text for rollout in group.rollouts)


@pytest.mark.parametrize("predictions", [1, 2, 3])
def test_tokens_of_both_players_begin_with_their_prompts(tmp_path: Path, predictions: int) -> None:
    groups = game(tmp_path / "run", "print(6 * 7)", ["```output\n42\n```"] * predictions)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert len(rollouts) == 2 + 2 * predictions
    for rollout in rollouts:
        (sequence,) = token_sequences(rollout)
        assert sequence.whole
        assert 0 < sum(sequence.mask) < len(sequence.ids)
        assert rollout.stop_reason == "done"


@pytest.mark.parametrize(
    ("answer", "proposer"),
    [("```\n42\n```", -1.0), ("```\n 42\r\n```", -1.0), ("42", 1.0), ("```\n42.0\n```", 1.0), ("", 1.0)],
)
def test_zero_sum(tmp_path: Path, answer: str, proposer: float) -> None:
    groups = game(tmp_path / "run", "print(42)", [answer])
    assert {rollout.reward for rollout in groups[0].rollouts} == {proposer}
    assert {rollout.reward for group in groups[1:] for rollout in group.rollouts} == {-proposer}


@pytest.mark.parametrize(
    "program",
    [
        "x = 1",
        "print()",
        "print(1); 1 / 0",
        "print(1",
        "import random; print(random.random())",
        "print({str(n) for n in range(50)})",
        "print(hash('x'))",
        "print(id(object()))",
        "import time; print(time.time())",
        "import os; print(os.urandom(4))",
        "print(input())",
        "print('x' * 5000)",
        "",
    ],
)
def test_void_programs_lose_and_nobody_has_to_predict_them(tmp_path: Path, program: str) -> None:
    (group,) = game(tmp_path / "run", program, ["```\n1\n```"])
    assert group.last
    assert [rollout.reward for rollout in group.rollouts] == [-1.0, -1.0]
    assert all(rollout.metrics["void_program"] == 1.0 for rollout in group.rollouts)


def test_learnability(tmp_path: Path) -> None:
    right, wrong = "```\n42\n```", "```\n1\n```"
    for number, (answers, reward) in enumerate(
        (([right, wrong, wrong], 2 / 3), ([wrong, wrong], 0.0), ([right, right], 0.0))
    ):
        groups = game(tmp_path / str(number), "print(42)", answers, proposer_reward="learnability")
        assert [rollout.reward for rollout in groups[0].rollouts] == pytest.approx([reward, reward])


OPPONENT = """
def reply(messages, request):
    open("asked.txt", "a").write(f"{request.sampling.temperature} ")
    return "```\\n" + ("42" if "print(42)" in messages[-1].text else "?") + "\\n```"
"""
PROPOSER = """
def reply(messages, request):
    open("asked.txt", "a").write(f"{request.sampling.temperature} ")
    assert "predict" in messages[0].text
    return "```python\\nprint(42)\\n```"
"""


def command(*words: str) -> list[dict[str, Any]]:
    """`atropos gen code-game` with two programs of one task."""
    Path("proposer.py").write_text(PROPOSER)
    Path("opponent.py").write_text(OPPONENT)
    flags = ("--limit", "1", "--group-size", "2", "--predictions", "2", "--backend", "scripted", "--overwrite")
    assert app.run(["gen", "code-game", *flags, *words, "--backend.token-ids", "-o", "run"]) == 0
    return [json.loads(line) for line in Path("run/groups.jsonl").read_text().splitlines()]


def test_another_model_is_the_opponent_and_only_proposers_are_trained(atropos_clean: Path) -> None:
    options = json.dumps({"function": "./opponent.py:reply"})
    opponent = ("--role.opponent.backend", "scripted", "--role.opponent.backend-options", options)
    (group,) = command("--backend.function", "./proposer.py:reply", *opponent, "--role.opponent.temperature", "0.25")
    assert group["last"]
    assert [(side["role"], side["reward"]) for side in group["rollouts"]] == [("proposer", -1.0)] * 2
    assert sorted(Path("asked.txt").read_text().split()) == ["0.25"] * 4 + ["1.0"] * 2
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["usage"]["scripted (opponent)"]["requests"] == 2
    assert (
        app.run(["sft-gen", "run", "--format", "tokens", "--select", "all", "--keep-duplicates", "-o", "rows.jsonl"])
        == 0
    )
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        trained = bytes(label for label in row["labels"] if 0 <= label < 256)
        assert trained.startswith(b"```python\nprint(42)")


def test_the_policy_predicts_with_the_sampling_of_the_role_and_both_sides_are_trained(atropos_clean: Path) -> None:
    both = PROPOSER.replace(
        '    assert "predict" in messages[0].text\n', '    if "What does" in messages[-1].text: return "x"\n'
    )
    Path("both.py").write_text(both)
    found = command("--backend.function", "./both.py:reply", "--role.opponent.temperature", "0.5", "--advantage", "rae")
    roles = [{side["role"] for side in group["rollouts"]} for group in found]
    assert roles == [{"proposer"}, {"opponent"}, {"opponent"}]
    assert set(Path("asked.txt").read_text().split()) == {"1.0", "0.5"}
    assert found[0]["advantages"] == pytest.approx([1.0, 0.95])
    assert found[1]["advantages"] == pytest.approx([-1.0, -0.95])


def test_two_runs_that_print_alike_are_deterministic(sandbox: Sandbox) -> None:
    for code, same in (("print(sorted({'a', 'b'}))", True), ("print(list({'a', 'b', 'c', 'd', 'e'}))", False)):
        first, second = (sandbox.run(code, hash_seed=seed) for seed in (0, 1))
        assert prediction.deterministic(first, second) is same


def test_requests_are_endless_and_the_same_everywhere() -> None:
    tasks = CodeExecEnvironment(CodeExecEnvironment.Config()).tasks("train")
    texts = [tasks[index].prompt[-1].text for index in range(200)]
    assert len(set(texts)) > 150
    assert "{" not in "".join(texts)
    assert request("0:train:7") == request("0:train:7")
    other = CodeExecEnvironment(CodeExecEnvironment.Config(data_seed=1)).tasks("train")
    assert other[0].prompt != tasks[0].prompt
