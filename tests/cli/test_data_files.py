"""Files of every format go through analyze and view without a traceback.

Files that hold tasks instead of rollouts are refused with a reason. `pytest -rA -s` shows the counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import case_tables
import pytest

from .view_support import Exported

CLI = Callable[..., Any]
FILES = case_tables.data_files()
TASKS_ONLY = {
    "BFCL_v4_multi_turn_base.json",
    "HumanEval.jsonl.gz",
    "MockAirlineDomainEnv-few_shot.jsonl",
    "math500_test.jsonl",
    "maze.jsonl",
    "sanitized-mbpp.json",
    "test.jsonl",
    "tw-rewardsDense_goalDetailed.json",
    *("gsm8k.jsonl", "humaneval.jsonl", "math.jsonl", "mbpp.json", "tasks_maze.jsonl", "tasks_tools.jsonl"),
}
"""Data sets, few-shot texts and a game: rows that are no rollouts of any format."""


@pytest.mark.parametrize("name", FILES)
def test_analyze_and_view(cli: CLI, name: str) -> None:
    path = FILES[name]
    analysed = cli("analyze", path, "--html", "page.html", "--json")
    viewed = cli("view", path, "--export", "view.html", "--limit", "20")
    for done in (analysed, viewed):
        assert "Traceback" not in done.stderr
        assert done.code == (6 if path.name in TASKS_ONLY else 0), done.stderr
    if path.name in TASKS_ONLY:
        assert f"{path.name}:1" in analysed.stderr
        assert "no usable rows" in viewed.stderr
        return
    report = analysed.json
    json.dumps(report, allow_nan=False)
    rollouts = [env["rollouts"] for env in report["environments"].values()]
    total, scored = (sum(counts[key] for counts in rollouts) for key in ("total", "scored"))
    assert total == report["read"]["rollouts"] > 0
    page = Exported(Path("view.html"))
    data = page.data
    assert 0 < data["held"] <= 20
    assert sum(map(len, page.all("g"))) == data["held"]
    print(f"\n| {path.parent.name}/{path.name} | {report['read']['records']} | {total} | {scored} | {data['total']} |")
