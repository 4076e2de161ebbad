"""`atropos journal` and `atropos reevaluate`: what they refuse, and what they write."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.cli.app import run


def begin(folder: Path, **changes: Any) -> Path:
    """A training run as its files have it."""
    from atropos_cli.domain.plan import Plan
    from atropos_cli.domain.refs import ComponentRef
    from atropos_cli.domain.training import EvalSuite, TrainPlan

    folder.mkdir(parents=True)
    suite = Plan(
        atropos_version="0",
        environment=ComponentRef(name="arithmetic"),
        backend=ComponentRef(name="openai"),
        model="m",
        group_size=1,
    )
    values = {"suites": (EvalSuite(name="held", plan=suite),), **changes}
    plan = TrainPlan(atropos_version="0", method="grpo", trainer=ComponentRef(name="native"), model="m", **values)
    (folder / "plan.json").write_text(json.dumps({"digest": plan.digest, **plan.model_dump(mode="json")}))
    (folder / "train.json").write_text(json.dumps({"state": "finished", "method": "grpo", "model": "m", "steps": 3}))
    return folder


def test_an_empty_folder(isolation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["journal"]) == 6
    assert "runs is no folder" in capsys.readouterr().err
    (isolation / "runs").mkdir()
    assert run(["journal"]) == 0
    assert "no training or evaluation runs below runs" in capsys.readouterr().err


def test_markdown_is_written_again_but_replaces_nothing_else(
    isolation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(isolation / "runs" / "a")
    page = isolation / "JOURNAL.md"
    assert run(["journal", "-o", "JOURNAL.md"]) == 0
    fresh = page.read_bytes()
    page.write_bytes(fresh + b"not in \xfe UTF-8\n")
    assert run(["journal", "-o", "JOURNAL.md", "--overwrite"]) == 0
    assert b"not in \xfe UTF-8" in page.read_bytes()
    page.write_bytes(fresh)
    assert run(["journal", "-o", "JOURNAL.md"]) == 0
    assert "| a |" in page.read_text()
    (isolation / "notes.md").write_text("my own")
    assert run(["journal", "-o", "notes.md"]) == 6
    assert (isolation / "notes.md").read_text() == "my own"
    assert "no journal" in capsys.readouterr().err
    assert run(["journal", "-o", "-"]) == 0
    assert capsys.readouterr().out == (isolation / "JOURNAL.md").read_text()
    assert run(["journal", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["run"] == "a"


def test_what_there_is_to_evaluate(isolation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("atropos_local")
    folder = begin(isolation / "r")
    assert run(["reevaluate", "r"]) == 6
    assert "r holds no checkpoints" in capsys.readouterr().err
    for name in ("checkpoints/step-10", "checkpoints/step-9", "checkpoints/.writing-step-11", "model"):
        (folder / name).mkdir(parents=True)
    assert run(["reevaluate", "r", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        [name, "held", f"r/reevaluations/{name}/held"] for name in ("step-9", "step-10", "model")
    ]
    assert run(["reevaluate", "r", "--checkpoint", "step-11"]) == 2
    assert "it has: step-9, step-10, model" in capsys.readouterr().err
    assert run(["reevaluate", "r", "--suite", "x"]) == 2
    begin(isolation / "s", suites=())
    (isolation / "s" / "model").mkdir()
    assert run(["reevaluate", "s"]) == 6
    assert "trained without suites" in capsys.readouterr().err
    assert run(["reevaluate", "nowhere"]) == 6


def test_an_evaluation_has_the_commit_it_was_made_with(isolation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    player = ("--backend", "scripted", "--backend.replies", "Answer: 7")
    assert run(["eval", "arithmetic", *player, "--limit", "2", "--output", "runs/judged"]) == 0
    capsys.readouterr()
    assert run(["journal", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["git_commit"] == head
