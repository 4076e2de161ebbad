"""Every file of the shared data goes through analyze and view without a traceback.

Files that hold tasks instead of rollouts are refused with a reason. `pytest -rA -s` shows the counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CLI = Callable[..., Any]
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
FILES = sorted(p for p in DATA.glob("*/*") if p.suffix in (".json", ".jsonl", ".gz")) if DATA.exists() else []
TASKS_ONLY = {
    "BFCL_v4_multi_turn_base.json",
    "HumanEval.jsonl.gz",
    "MockAirlineDomainEnv-few_shot.jsonl",
    "math500_test.jsonl",
    "maze.jsonl",
    "sanitized-mbpp.json",
    "test.jsonl",
    "tw-rewardsDense_goalDetailed.json",
}
"""Data sets, few-shot texts and a game: rows that are no rollouts of any format."""

pytestmark = pytest.mark.skipif(not FILES, reason="../shared/data is not there")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_analyze_and_view(cli: CLI, path: Path) -> None:
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
    assert total == report["read"]["attempts"] > 0
    page = Path("view.html").read_text()
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert 0 < data["held"] <= 20
    assert len(data["groups"]) == data["held"]
    print(f"\n| {path.parent.name}/{path.name} | {report['read']['records']} | {total} | {scored} | {data['total']} |")


def test_the_files_of_tasks_are_all_there() -> None:
    assert {path.name for path in FILES} >= TASKS_ONLY
