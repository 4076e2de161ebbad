"""mbpp and humaneval: splits, prompts, names, gold answers of the real data."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import run_environment
from atropos_code import judging
from atropos_code.datasets import HumanEvalEnvironment, MbppEnvironment
from atropos_code.rows import names_needed, read_rows
from case_tables import OWN_DATA, real_data

from atropos_cli.sdk import AtroposError, DataError

J04 = [
    {
        "task_id": 40,
        "prompt": "Write a function to count characters.",
        "code": "import collections\ndef freq(s):\n  return collections.Counter(s)",
        "test_imports": ["import math"],
        "test_list": ['assert freq("aa")=={"a":2}', "assert freq('b')[math.__name__ and 'b'] == 1"],
    }
]


def mbpp(path: Path, **options: Any) -> MbppEnvironment:
    """The environment over a file."""
    return MbppEnvironment(MbppEnvironment.Config(data_path=path, **options))


@pytest.fixture
def one(tmp_path: Path) -> Path:
    path = tmp_path / "mbpp.json"
    path.write_text(json.dumps(J04))
    return path


@pytest.mark.parametrize("shown", [0, 1, 3])
def test_the_prompt_names_the_function(one: Path, shown: int) -> None:
    (task,) = mbpp(one, shown_tests=shown).tasks("test")
    text = task.prompt[-1].text
    assert "`freq`" in text
    assert text.count("assert") == min(shown, 2)
    assert task.info["names"] == ["freq"]


def test_a_wrong_name_is_a_kind_of_its_own(one: Path, tmp_path: Path) -> None:
    replies = (
        "```python\ndef count(s): return {}\n```",
        "```python\ndef freq(s): return {c: s.count(c) for c in s}\n```",
    )
    (group,) = run_environment(
        MbppEnvironment, folder=tmp_path / "run", replies=replies, config={"data_path": str(one)}, limit=1, split="test"
    )
    wrong, right = sorted(group.rollouts, key=lambda rollout: rollout.reward or 0.0)
    assert (wrong.reward, wrong.metrics["missing_function"], wrong.info["verdict"]) == (0.0, 1.0, "missing_function")
    assert "freq" in str(wrong.info["error"])
    assert (right.reward, right.metrics["missing_function"], right.metrics["tests_passed"]) == (1.0, 0.0, 1.0)


def test_an_empty_split_tells_which_are_not(one: Path) -> None:
    with pytest.raises(DataError, match=r"'train' has no tasks here; with tasks: test \(1\), all \(1\)"):
        mbpp(one).tasks("train")


@pytest.mark.parametrize(
    "text",
    ["{", '[{"a": 1}, 2]', '{"task_id": 1}\n{"x"', '{"task_id": 1, "text": "t", "test_list": ["assert True"]}'],
)
def test_bad_files_are_errors_with_their_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(AtroposError):
        mbpp(path).tasks("all")


def test_rows_may_be_lines_and_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in J04).encode()))
    assert read_rows(path) == J04


@pytest.mark.parametrize(
    ("tests", "gold", "known", "names"),
    [
        (["assert f(1) == g"], "g = 1\ndef f(x): return h(x)\ndef h(x): return x", [], ["f", "g"]),
        (["assert sum(1) == len('a')"], "def sum(x): return 1", [], ["sum"]),
        (["assert set(f(1)) == set([1])"], "def f(x): return [1]", [], ["f"]),
        (["assert math.isclose(f(x), 1)"], "", ["import math", "x = 1"], ["f"]),
        (["assert [f(y) for y in range(3)]"], "", [], ["f"]),
    ],
)
def test_names_that_the_program_has_to_define(tests: list[str], gold: str, known: list[str], names: list[str]) -> None:
    assert names_needed(tests, gold, known) == names


def test_splits_are_those_of_the_authors() -> None:
    env = mbpp(real_data("mbpp/sanitized-mbpp.json"))
    assert {split: len(env.tasks(split)) for split in env.splits} == {
        "prompt": 7, "test": 257, "validation": 43, "train": 120, "all": 427,
    }  # fmt: skip


def test_examples_come_before_the_task() -> None:
    env = mbpp(OWN_DATA / "mbpp.json", few_shot=3, prompt_style="plain")
    text = env.tasks("test")[0].prompt[0].text
    assert (text.count("[BEGIN]"), text.count("[DONE]")) == (4, 3)
    assert text.endswith("[BEGIN]\n")


@pytest.mark.parametrize("name", ["mbpp", "humaneval"])
@pytest.mark.parametrize("real", [False, True], ids=["own", "real"])
def test_gold_answers_earn_full_marks(name: str, real: bool) -> None:
    env: Any
    if name == "mbpp":
        path = real_data("mbpp/sanitized-mbpp.json") if real else OWN_DATA / "mbpp.json"
        env, split = mbpp(path), "all"
    else:
        path = real_data("humaneval/HumanEval.jsonl.gz") if real else OWN_DATA / "humaneval.jsonl"
        env, split = HumanEvalEnvironment(HumanEvalEnvironment.Config(data_path=path)), "test"
    tasks = env.tasks(split)
    # A sample that reaches everywhere, and tasks that were hard: built-in names, helpers, imports of the gold program.
    hard = {"mbpp-126", "mbpp-596", "HumanEval/32", "HumanEval/38", "HumanEval/50"}
    chosen = [task for place, task in enumerate(tasks) if place % max(1, len(tasks) // 28) == 0 or task.id in hard]

    async def check() -> list[str]:
        verdicts = await asyncio.gather(*(env.validate(task) for task in chosen))
        return [task.id for task, verdict in zip(chosen, verdicts, strict=True) if not verdict]

    assert len(chosen) >= min(28, len(tasks))
    assert asyncio.run(check()) == []


def test_a_body_alone_completes_the_function() -> None:
    path = OWN_DATA / "humaneval.jsonl"
    env = HumanEvalEnvironment(HumanEvalEnvironment.Config(data_path=path, prompt_style="plain"))
    task = env.tasks("test")[0]
    body = str(task.answer).removeprefix(str(task.info["stem"]))
    suite = judging.suite_of(task)
    assert suite is not None
    for reply in (f"{body}[DONE]", f"```python\n{body}```", f"```python\n{task.answer}\n```"):
        result = asyncio.run(judging.test_reply(task, suite, reply))
        assert result.verdict == "passed", (reply, result)


def test_without_a_file_and_without_the_hub_there_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(AtroposError) as caught:
        MbppEnvironment(MbppEnvironment.Config()).tasks("test")
    assert caught.value.hint is not None
    assert "--data-path" in caught.value.hint
