"""Cases from public bug reports: hostile replies through the reward, and what is left behind."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import case_tables
import pytest
from atropos_authoring import make_rollout
from atropos_code.rewards import code_tests

from atropos_cli.sdk import Rollout, Task

EXPECTED = {"E18": [0.0], "E20": [0.0, 1.0], "E24": [0.0, 1.0]}


def rows(case_id: str) -> list[dict[str, Any]]:
    return [json.loads(row) for row in case_tables.field_case(case_id)["input"]["files"]["r.jsonl"].splitlines()]


def task(row: dict[str, Any]) -> Task:
    sandbox = {"timeout_s": 8.0, "memory_mb": 512, "isolation": "auto"}
    return Task(id="t", info={"tests": row["tests"], "names": ["f"], "sandbox": sandbox})


def score(row: dict[str, Any], **limits: Any) -> float:
    rollout: Rollout = make_rollout(row["completion"])
    (value,) = asyncio.run(code_tests(task(row), [rollout]))
    return float(value)


@pytest.mark.parametrize("case_id", sorted(EXPECTED))
def test_hostile_replies_have_the_right_reward(case_id: str) -> None:
    assert [score(row) for row in rows(case_id)] == EXPECTED[case_id]
    assert not (Path.home() / "owned").exists()


def test_e22_files_that_a_program_writes_change_no_verdict() -> None:
    """What it defines is compared by value outside its process: an object that equals everything does not pass."""
    assert [score(row) for row in rows("E22")] == [0.0]
    assert not Path("reward.txt").exists()


def test_e17_ended_programs_leave_no_zombies() -> None:
    endless = {"tests": ["assert f(1) == 2"], "completion": "```python\nwhile True: pass\n```"}
    short = task(endless).model_copy(update={"info": {**task(endless).info, "sandbox": {"timeout_s": 0.3}}})
    rollouts = [make_rollout(endless["completion"] + f"\n# {n}", number=n) for n in range(12)]
    assert asyncio.run(code_tests(short, rollouts)) == [0.0] * 12
    assert _zombies() == []


def _zombies() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] == "Z" and int(fields[1]) == os.getpid():
                found.append(int(entry.name))
    return found
