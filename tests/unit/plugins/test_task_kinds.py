"""Every environment of ours names the kind of each task."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.task import TASK_NAME, kind_of_info
from atropos_cli.plugins.discovery import get_registry

QUESTION = {"question": "What is 2 + 3?", "problem": "What is 2 + 3?", "answer": "#### 5", "solution": "It is 5."}
CODE = {
    "text": "Add two.",
    "code": "def plus(x):\n  return x + 2\n",
    "test_list": ["assert plus(1) == 3"],
    "task_id": 601,
}
STEM = {"prompt": 'def two() -> int:\n    """Two."""\n', "entry_point": "two", "canonical_solution": "    return 2\n"}
ROWS: dict[str, dict[str, Any]] = {
    "dataset": {"prompt": "What is 2 + 3?", "answer": "5"},
    "multiple-choice": {"question": "Which?", "choices": ["a", "b"], "answer": 0},
    "gsm8k": QUESTION,
    "math500": {**QUESTION, "subject": "Number Theory", "level": 1, "unique_id": "1"},
    "aime": QUESTION,
    "mbpp": CODE,
    "humaneval": {**STEM, "task_id": "HumanEval/0", "test": "def check(candidate):\n    assert candidate() == 2\n"},
}
KINDS = {"dataset": "rows", "multiple-choice": "rows", "math500": "Number Theory"}


@pytest.mark.parametrize("name", ROWS)
def test_every_environment_of_rows_names_the_kind(name: str, isolation: Path) -> None:
    Path("rows.jsonl").write_text(json.dumps(ROWS[name]) + "\n")
    cls = get_registry().find("environment", name).load()
    option = "path" if "path" in cls.Config.model_fields else "data_path"
    environment = cls(cls.Config(**{option: "rows.jsonl"}))
    task = environment.tasks(cls.splits[0])[0]
    assert task.info[TASK_NAME] == KINDS.get(name, name)


@pytest.mark.parametrize(
    ("name", "several"),
    [
        ("arithmetic", True),
        ("arithmetic_eval", True),
        ("code-exec", False),
        ("code-game", False),
        ("textworld", True),
        ("reasoning-gym", True),
    ],
)
def test_every_environment_that_makes_tasks_names_the_kind(name: str, several: bool, isolation: Path) -> None:
    cls = get_registry().find("environment", name).load()
    environment = cls(cls.Config())
    tasks = list(itertools.islice(environment.tasks(cls.splits[0]), 3 if name == "reasoning-gym" else 12))
    kinds = {task.info[TASK_NAME] for task in tasks}
    assert all(isinstance(kind, str) and kind for kind in kinds)
    assert (len(kinds) > 1) is several
    assert {kind_of_info(task.info) for task in tasks} == kinds


def test_runs_made_before_kinds_had_one_name_are_read() -> None:
    for info, kind in (
        ({"family": "chain_sum"}, "chain_sum"),
        ({"bootcamp": "Sums"}, "Sums"),
        ({"kind": "add"}, "add"),
    ):
        assert kind_of_info(info) == kind
    assert kind_of_info({"family": ["x"], TASK_NAME: "y"}) == "y"
    assert kind_of_info({"kind": 3, "tests": []}) is None
