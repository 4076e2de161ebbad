"""Tables and charts that plugins add to `atropos analyze` by the hook atropos_analyze."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PLUGIN = """
from atropos_cli.sdk import hookimpl
from atropos_cli.sdk.analysis import AnalysisTable, Analyzer, Chart, Line, Series, histogram

class Steps(Analyzer):
    def __init__(self):
        self.steps = Series()
        self.turns = 0
        self.failed = 0

    def add(self, group):
        self.turns += group.turn is not None
        for rollout in group.rollouts:
            if rollout.failed:
                self.failed += 1
            else:
                self.steps.add(rollout.info["steps"])

    def tables(self):
        yield AnalysisTable(
            "steps", "Steps <b>", ("what", "value", "share"),
            [("mean", self.steps.mean, 0.25), ("turns", self.turns, None), ("failed", self.failed, float("nan"))],
            shares=("share",), note="a note & more",
        )

    def charts(self):
        yield Chart("steps", "Steps", "steps", "rollouts", bars=histogram(self.steps.sample))

@hookimpl
def atropos_analyze(env):
    if env == "maze":
        return Steps()
"""


def rollout(number: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "north"}]
    return {"id": f"r{number}", "task_id": "t", "messages": messages, "rewards": {}, "reward": 0.5, **more}


def groups(path: Path, *rows: dict[str, Any]) -> Path:
    lines = [
        {
            "schema_version": 1,
            "group_id": f"abc-{number}",
            "last": True,
            "env": row.pop("env", "maze"),
            "task": {"id": "t", "prompt": [], "answer": None, "info": {}},
            "model": "m",
            "seed": 0,
            **row,
        }
        for number, row in enumerate(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def run() -> Path:
    failure = {"stage": "generate", "type": "X", "message": "x"}
    return groups(
        Path("groups.jsonl"),
        {"rollouts": [rollout(0, info={"steps": 3}), rollout(1, info={"steps": 5})], "episode_id": "e", "turn": 0},
        {"rollouts": [rollout(0, info={"steps": 4}), rollout(1, reward=None, failure=failure)]},
        {"rollouts": [rollout(0)], "env": "other"},
    )


def test_a_plugin_adds_tables_and_charts(cli: Any, install: Any, run: Path) -> None:
    install("maze-analysis", {"maze_analysis_x.py": PLUGIN}, {"atropos": {"maze": "maze_analysis_x"}})
    data = cli("analyze", run, "--json").json["environments"]
    assert data["maze"]["tables"]["steps"]["rows"] == [
        {"what": "mean", "value": 4.0, "share": 0.25},
        {"what": "turns", "value": 1, "share": None},
        {"what": "failed", "value": 1, "share": None},
    ]
    assert "tables" not in data["other"]
    text = cli("analyze", run).stdout
    assert "-- Steps <b>" in text
    assert "25.0 %" in text
    assert "a note & more" in text
    cli("analyze", run, "--html", "page.html")
    page = Path("page.html").read_text()
    assert "Steps &lt;b&gt;" in page
    assert "a note &amp; more" in page
    assert page.count('aria-label="Steps"') == 1


BROKEN = {
    "raises": (
        "class A(Analyzer):\n    def add(self, group): raise KeyError('kind')\n    def tables(self): return []",
        "no analysis by plugin 'maze' at groups.jsonl:1: KeyError: 'kind'",
    ),
    "no table": (
        "class A(Analyzer):\n    def add(self, group): pass\n    def tables(self): return ['steps']",
        "no analysis by plugin 'maze': TypeError: tables() gave str, not an AnalysisTable",
    ),
    "wrong row": (
        (
            "class A(Analyzer):\n    def add(self, group): pass\n"
            "    def tables(self): return [AnalysisTable('t', 'T', ('a', 'b'), [(1,)])]"
        ),
        "no analysis by plugin 'maze': ValueError: table 't' has a row of 1 cells for 2 columns",
    ),
    "no numbers": (
        (
            "class A(Analyzer):\n    def add(self, group): pass\n    def tables(self): return []\n"
            "    def charts(self): return [Chart('c', 'C', 'x', 'y', lines=(Line('l', (1.0,), (float('nan'),)),))]"
        ),
        "no analysis by plugin 'maze': ValueError: chart 'c' has values that cannot be drawn",
    ),
    "no analyzer": ("A = list", "no analysis by plugin 'maze' (maze-analysis): TypeError: atropos_analyze gave list"),
    "the hook raises": (
        "def A(): raise OSError('disk')",
        "no analysis by plugin 'maze' (maze-analysis): OSError: disk",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_plugin_that_fails_costs_only_its_own_tables(cli: Any, install: Any, run: Path, name: str) -> None:
    source, note = BROKEN[name]
    imports = "from atropos_cli.sdk import *\nfrom atropos_cli.sdk.analysis import *\n"
    module = f"{imports}{source}\n@hookimpl\ndef atropos_analyze(env):\n    return A()\n"
    install("maze-analysis", {"maze_broken_x.py": module}, {"atropos": {"maze": "maze_broken_x"}})
    done = cli("analyze", run, "--env", "maze", "--json")
    assert done.code == 0
    assert any(found.startswith(note) for found in done.json["notes"])
    assert done.json["environments"]["maze"]["rollouts"]["total"] == 4
    assert "note: no analysis by plugin" in cli("analyze", run).stdout


def test_tables_of_one_name_are_kept_apart(cli: Any, install: Any, run: Path) -> None:
    install("maze-a", {"maze_a_x.py": PLUGIN}, {"atropos": {"first": "maze_a_x"}})
    install("maze-b", {"maze_b_x.py": PLUGIN}, {"atropos": {"second": "maze_b_x"}})
    data = cli("analyze", run, "--json", "--png", "pictures").json["environments"]
    assert sorted(data["maze"]["tables"]) == ["second-steps", "steps"]
    assert {"maze-steps.png", "maze-second-steps.png"} <= {path.name for path in Path("pictures").iterdir()}
