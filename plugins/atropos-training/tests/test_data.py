"""Stored data of `atropos train`: what is refused and how, what a suite asks too, how completions are scored."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_training.order import held_out_digests, task_digests
from atropos_training.overlap import prompt_digests

from atropos_cli.sdk import Task, system, user

TRAINER = f"{Path(__file__).with_name('step_trainer.py')}:Steps"

CHECKS = """
from atropos_cli.sdk import Environment, Task, group_reward, reward, user

@group_reward
def best(task, rollouts):
    \"\"\"1 for the longest of several.\"\"\"
    return [float(number == len(rollouts) - 1) / len(rollouts) for number in range(len(rollouts))]

@reward
def odd(task, rollout):
    \"\"\"Breaks at 0.\"\"\"
    return 1 / int(rollout.text)

class Counting(Environment):
    \"\"\"Ten questions.\"\"\"
    name = "counting"
    rewards = (odd,)
    splits = ("test",)

    def tasks(self, split):
        return [Task(id=f"t{n}", prompt=(user(f"q{n}"),), answer=n) for n in range(3)]
"""


@pytest.fixture
def train(cli: Callable[..., Any]) -> Callable[..., Any]:
    """train(method, rows, *arguments) with the trainer of steps; rows go to rows.jsonl, None: there is no file."""
    Path("checks.py").write_text(CHECKS)

    def call(method: str, rows: list[Any] | None, *arguments: str, run: str = "run") -> Any:
        if rows is not None:
            Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = ("train", method, "--trainer", TRAINER, "--model", "m", "--data", "rows.jsonl", "-o", run)
        return cli(*words, "--steps", "1", *arguments)

    return call


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("method", "rows", "code", "words"),
    [
        ("sft", None, 6, ["rows.jsonl does not exist", "a run folder or a glob in quotes with --data"]),
        ("sft", [], 6, ["rows.jsonl holds no rows"]),
        ("sft", [{"foo": 1}], 6, ["rows.jsonl:1 is neither a row for sft", "its keys: foo", "prompt and completion"]),
        ("sft", [{"completion": "ab"}], 6, ["its keys: completion", "without its prompt", "prompt and completion"]),
        (
            "sft",
            [{"conversations": "abc"}],
            6,
            ["its keys: conversations", "conversations: expected", "the text 'abc'"],
        ),
        ("dpo", [{"foo": 1}], 6, ["is neither a row for dpo", "its keys: foo", "prompt, chosen and rejected"]),
        ("grpo", [{"question": "q"}], 6, ["rows.jsonl:1 has no prompt", "its keys: question", "`answer`"]),
        ("grpo", [{"prompt": 7}], 6, ["rows.jsonl:1: its prompt is the number 7"]),
        ("grpo", [{"prompt": ["a"]}], 6, ["rows.jsonl:1: its prompt is a list, but not of messages"]),
        ("grpo", [{"prompt": "q"}], 3, ["no reward is named", "--reward NAME"]),
        ("grpo", [{"prompt": "q", "response": "gold"}], 3, ["no reward is named"]),
        ("grpo", [{"prompt": "q", "history": "unclear"}], 6, ["rows.jsonl:1: history: expected earlier turns"]),
        ("dpo", [{"chosen": "a", "rejected": "b"}], 6, ["rows.jsonl:1", "no prompt under any of the usual names"]),
        ("sft", [{"messages": [], "instruction": "x"}], 6, ["rows.jsonl:1"]),
    ],
)
def test_what_cannot_be_trained_on_is_said_before_a_model_is_loaded(
    method: str, rows: list[Any] | None, code: int, words: list[str], dry: list[str], train: Callable[..., Any]
) -> None:
    result = train(method, rows, *dry)
    assert result.code == code, result.stderr
    for word in words:
        assert word in result.stderr
    assert not Path("run").exists()


def test_a_reward_that_is_not_there_is_an_error_of_the_plan(train: Callable[..., Any]) -> None:
    result = train("grpo", [{"prompt": "q"}], "--reward", "exact_mach", "--dry-run")
    assert result.code == 4
    assert "exact_match" in result.stderr


def test_rollouts_that_make_no_rows_say_why(train: Callable[..., Any]) -> None:
    result = train("sft", [{"question": "a", "completion": "ab", "finish_reason": "length"}])
    assert result.code == 6
    assert "makes no rows for sft (first row has the keys: question, completion, finish_reason" in result.stderr
    assert "left out: truncated" in result.stderr
    assert "atropos sft-gen reports" in result.stderr


def test_broken_lines_are_no_reason_to_name_options_that_train_has_not(train: Callable[..., Any]) -> None:
    Path("rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt\n{"prompt": "a", "completion": "b"}\n')
    result = train("sft", None)
    assert result.code == 6
    assert "broken line 2" in result.stderr
    assert "--tolerant" not in result.stderr


def test_a_torn_last_line_is_told(train: Callable[..., Any]) -> None:
    Path("rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt')
    result = train("sft", None)
    assert result.code == 0
    assert "the last line is torn" in result.stderr


def test_evaluations_need_a_suite(train: Callable[..., Any]) -> None:
    result = train("sft", [{"prompt": "a", "completion": "b"}], "--eval-every", "2")
    assert result.code == 2
    assert "no suite" in result.stderr


def kept() -> list[str]:
    found: list[str] = json.loads(Path("run/rows.json").read_text())
    return found


QUESTION = {"role": "user", "content": "q1"}
ANSWER = {"role": "assistant", "content": "1"}
PAIR = {"chosen": "1", "rejected": "2"}


@pytest.mark.parametrize(
    ("method", "same", "other"),
    [
        ("grpo", {"prompt": "q1"}, {"prompt": "x"}),
        ("grpo", {"prompt": [QUESTION]}, {"prompt": [QUESTION, ANSWER, QUESTION]}),
        ("sft", {"prompt": "q1", "completion": "1"}, {"prompt": "q8", "completion": "1"}),
        ("sft", {"messages": [QUESTION, ANSWER]}, {"messages": [ANSWER, QUESTION, ANSWER]}),
        ("sft", {"messages": [{"role": "system", "content": "s"}, QUESTION, ANSWER]}, {"text": "q1"}),
        ("sft", {"conversations": [{"from": "human", "value": "q1"}, {"from": "gpt", "value": "1"}]}, {"text": "q1"}),
        ("dpo", {"prompt": "q1", **PAIR}, {"prompt": "q9", **PAIR}),
        ("dpo", {"chosen": [QUESTION, ANSWER], "rejected": [QUESTION, ANSWER]}, {"prompt": "q9", **PAIR}),
    ],
)
def test_rows_that_ask_what_a_suite_asks_are_left_out(
    method: str, same: dict[str, Any], other: dict[str, Any], train: Callable[..., Any]
) -> None:
    suite = ("--eval", "./checks.py:Counting")
    reward = ("--reward", "./checks.py:best") if method == "grpo" else ()
    result = train(method, [same, other, same], *suite, *reward)
    assert result.code == 0, result.stderr
    assert "2 rows of the data ask what tasks of an evaluation ask: they are left out" in result.stderr
    assert kept() == [str(other)]
    alone = train(method, [same], *suite, *reward, run="alone")
    assert alone.code == 6
    assert "none is left to train on" in alone.stderr


def test_groups_of_a_suites_tasks_are_left_out(train: Callable[..., Any], cli: Callable[..., Any]) -> None:
    replies = ("--backend", "scripted", "--backend.replies", "1", "--backend.replies", "2", "--group-size", "2")
    assert cli("gen", "./checks.py:Counting", "-o", "made", "--split", "test", *replies).code == 0
    words = ("train", "grpo", "--trainer", TRAINER, "--model", "m", "--data", "made", "--steps", "1", "-o", "run")
    result = cli(*words, "--eval", "./checks.py:Counting:limit=2")
    assert result.code == 0, result.stderr
    assert "2 groups of the data ask what tasks of an evaluation ask" in result.stderr
    assert len(kept()) == 1


def test_a_prompt_is_told_as_a_task_is() -> None:
    task = Task(id="t", prompt=(user("q"),))
    assert task_digests(task) <= prompt_digests({"prompt": "q"})
    assert not prompt_digests({"input_ids": [1], "labels": [1]})
    assert task_digests(task).isdisjoint(prompt_digests({"prompt": [{"role": "assistant", "content": "q"}]}))


@pytest.mark.parametrize(
    ("asked", "row", "same"),
    [
        ("How many  apples are left?", {"prompt": "how many apples are left"}, True),
        ("太郎は林檎を７個買った。残りは？", {"question": "太郎は林檎を7個買った。残りは?"}, True),
        (
            "Combien d’élèves\u00a0?",
            {
                "conversations": [
                    {"from": "human", "value": "combien d'e\u0301le\u0300ves ?"},
                    {"from": "gpt", "value": "3"},
                ]
            },
            True,
        ),
        ("Combien d’élèves\u00a0?", {"problem": "combien d'e\u0301le\u0300ves ?"}, True),
        ("Translate: the dog", {"instruction": "Translate:", "input": "the dog", "output": "x"}, True),
        ("What is 3 - 2?", {"prompt": "What is 3 + 2?"}, False),
        ("(1+2)*3", {"prompt": "1+(2*3)"}, False),
        ("!?", {"prompt": "?!"}, False),
        ("Say “hi”; then go.", {"query": 'say "hi" then go'}, True),
        ("Solve 3+4=?", {"prompt": "Solve  3 + 4 =?\n"}, True),
        ("Push:\n#.@#\n#..#", {"prompt": "Push:\n#@.#\n#..#"}, False),
        ("Draw:\n# #\n", {"prompt": "Draw:\n##"}, False),
        (
            "วันนี้วันอะไร",
            {"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "วันนี้ วันอะไร"}]},
            True,
        ),
    ],
)
def test_overlap_with_an_evaluation_is_told_by_normalised_text(asked: str, row: dict[str, Any], same: bool) -> None:
    task = Task(id="t", prompt=(system("Answer."), user(asked)))
    assert held_out_digests([task, task]).isdisjoint(prompt_digests(row)) is not same


def test_system_messages_that_differ_are_a_part_of_what_an_evaluation_asks() -> None:
    tasks = [Task(id=text, prompt=(system(text), user("Go."))) for text in ("Count the red fish.", "Name a tree.")]
    found = held_out_digests(tasks)
    assert found.isdisjoint(prompt_digests({"prompt": "Go."}))
    row = {"messages": [{"role": "developer", "content": "count the red fish"}, {"role": "user", "content": "go"}]}
    assert found.isdisjoint(prompt_digests(row))  # no reply: not a row to learn from
    assert not found.isdisjoint(prompt_digests({"messages": [*row["messages"], {"role": "assistant", "content": "3"}]}))


def test_completions_of_a_prompt_are_scored_as_one_group(train: Callable[..., Any]) -> None:
    rows = [{"prompt": "a"}, {"prompt": "b"}]
    result = train("grpo", rows, "--reward", "./checks.py:best", "--trainer.group", "4")
    assert result.code == 0, result.stderr
    assert json.loads(Path("run/rewards.json").read_text()) == [0, 0, 0, 0.25, 0, 0, 0, 0.25]


def test_a_reward_that_breaks_is_told_with_its_reason_and_kept(train: Callable[..., Any]) -> None:
    rows = [{"prompt": "a", "id": "first"}, {"prompt": "b", "id": "second"}]
    result = train("grpo", rows, "--reward", "./checks.py:odd", "--trainer.group", "3")
    assert result.code == 0, result.stderr
    assert json.loads(Path("run/rewards.json").read_text()) == [None, 1, 0.5, None, 1, 0.5]
    assert "2 of 6 completions could not be scored" in result.stderr
    assert "odd: division by zero; failures.jsonl has all" in result.stderr
    failures = [json.loads(line) for line in Path("run/failures.jsonl").read_text().splitlines()]
    assert [(one["task_id"], one["stage"], one["type"]) for one in failures] == [
        ("first", "score", "ZeroDivisionError"),
        ("second", "score", "ZeroDivisionError"),
    ]
    assert len({one["group_id"] for one in failures}) == 2
    assert failures[0]["rollout"].endswith("/0")


def test_data_under_a_scheme_is_trained_on(cli: Any, tmp_path: Any) -> None:
    pytest.importorskip("fsspec")
    rows = tmp_path / "d.jsonl"
    words = ("train", "sft", "--trainer", TRAINER, "--model", "m", "--steps", "1", "-o", str(tmp_path / "run"))
    told = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    for row in ({"prompt": "q", "completion": "a"}, {"system": "S", "conversations": told}):
        rows.write_text(json.dumps(row) + "\n")
        result = cli(*words, "--data", f"file://{rows}", "--dry-run")
        assert result.code == 0, result.stderr
    assert "does not exist" in cli(*words, "--data", f"file://{rows}.gone", "--dry-run").stderr
    assert "is another place" in cli(*words[:-1], "s3://bucket/run", "--data", str(rows)).stderr


HANGING = """
import asyncio
from atropos_cli.sdk import reward

@reward
def spins(task, rollout):
    while rollout.text == "2":
        pass
    return 1.0

@reward
async def sleeps(task, rollout):
    if rollout.text == "2":
        await asyncio.sleep(3600)
    return 1.0
"""


@pytest.mark.parametrize("reward", ["spins", "sleeps"])
def test_a_reward_that_hangs_costs_its_completion_and_no_more(reward: str) -> None:
    Path("hanging.py").write_text(HANGING)
    Path("rows.jsonl").write_text(json.dumps({"prompt": "a", "id": "first"}) + "\n")
    words = ("train", "grpo", "--trainer", TRAINER, "--model", "m", "--data", "rows.jsonl", "--steps", "1", "-o", "run")
    given = ("--reward", f"./hanging.py:{reward}", "--trainer.group", "3", "--group-timeout", "2")
    command = [sys.executable, "-m", "atropos_cli", *words, *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert json.loads(Path("run/rewards.json").read_text()) == [1, 1, None]
    (failure,) = [json.loads(line) for line in Path("run/failures.jsonl").read_text().splitlines()]
    assert (failure["stage"], failure["type"], failure["rollout"][-2:]) == ("score", "RewardTimeout", "/2")
    assert json.loads(Path("run/plan.json").read_text())["group_timeout"] == 2
