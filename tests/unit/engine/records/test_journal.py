"""The journal reads run folders as they are, whole or damaged, and lets no text out of its cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atropos_cli.engine.training.records.journal import MARK, journal, markdown
from atropos_cli.engine.training.records.reevaluations import keep_values
from atropos_cli.errors import DataError

CURVE = {"first": 0.25, "first_step": 0, "last": 0.8, "last_step": 60, "best": 0.85, "best_step": 50}


def training(folder: Path, started: str, **changes: object) -> None:
    folder.mkdir(parents=True)
    state = {
        "state": "finished",
        "method": "grpo",
        "trainer": "native",
        "model": "smollm2",
        "steps": 60,
        "plan_digest": "d" * 64,
        "git_commit": "c" * 40 + "+",
        "trackers": {"wandb": {"id": "abc12345"}},
        "curves": {"eval/sums/accuracy": CURVE, "eval/sums/errors": CURVE},
        **changes,
    }
    (folder / "train.json").write_text(json.dumps(state))
    (folder / "plan.json").write_text(json.dumps({"rollouts": {"environment": {"name": "arithmetic"}}}))
    (folder / "log.jsonl").write_text(json.dumps({"time": started, "event": "started"}) + "\n")


def evaluation(folder: Path, started: str) -> None:
    folder.mkdir(parents=True)
    found = {
        "environment": "gsm8k",
        "environment_config": {},
        "split": "test",
        "model": "m",
        "plan_digest": "e" * 64,
        "atropos_version": "0",
        "sampling": {},
        "seed": 0,
        "samples": 4,
        "success_rule": "reward >= 1",
        "errors_count_as": "wrong",
        "tasks": 10,
        "attempts": 40,
        "scored": 40,
        "errors": 0,
        "accuracy": {"value": 0.5, "low": 0.4, "high": 0.6, "tasks": 10},
        "reward": None,
        "pass_at": {"4": {"value": 0.7, "tasks": 10}},
        "per_task": [],
    }
    (folder / "eval.json").write_text(json.dumps(found))
    (folder / "plan.json").write_text("{}")
    (folder / "log.jsonl").write_text(json.dumps({"time": started, "event": "started"}) + "\n{torn")


def test_runs_are_listed_by_their_start(tmp_path: Path) -> None:
    training(tmp_path / "b", "2026-01-02T10:00:00+00:00")
    training(tmp_path / "b" / "checkpoints" / "inner", "2026-01-01T00:00:00+00:00")  # belongs to b
    evaluation(tmp_path / "deep" / "er" / "a", "2026-01-03T10:00:00+00:00")
    training(tmp_path / "c", "2026-01-01T10:00:00+00:00", state="stopped", error="loss|not <finite>", curves={})
    keep_values(tmp_path / "b", "step-50", {"eval/sums/accuracy": 0.85})
    (tmp_path / "other").mkdir()
    entries, problems = journal(tmp_path)
    assert problems == []
    assert [entry.run for entry in entries] == ["c", "b", "deep/er/a"]
    _, b, a = entries
    assert (b.kind, b.what, b.steps, b.wandb) == ("train", "grpo (native) on arithmetic", 60, "abc12345")
    assert b.results == {"sums/accuracy": "0.250 -> 0.800 (best 0.850 at 50)"}
    assert b.reevaluated == {"step-50": {"eval/sums/accuracy": 0.85}}
    assert (a.kind, a.what) == ("eval", "gsm8k (test, 10 tasks x 4)")
    assert a.results == {"accuracy": "0.500 [0.400, 0.600]", "pass@4": "0.700"}

    text = markdown(entries, "Runs")
    assert text.startswith(MARK)
    assert "| 2026-01-02 10:00 | b | train grpo (native) on arithmetic | smollm2 | finished | 60 |" in text
    assert "cccccccccc+" in text
    assert "loss\\|not &lt;finite&gt;" in text
    assert "| step-50 | sums/accuracy 0.850 |" in text


def test_damaged_runs_are_named_and_left_out(tmp_path: Path) -> None:
    training(tmp_path / "good", "2026-01-02T10:00:00+00:00")
    for name, text in (("torn", '{"state": "run'), ("list", "[]"), ("odd", '{"curves": {"reward": 3}}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.json").write_text(text)
    entries, problems = journal(tmp_path)
    assert [entry.run for entry in entries] == ["good"]
    assert [Path(problem.partition(":")[0]).name for problem in problems] == ["list", "odd", "torn"]


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no folder"):
        journal(tmp_path / "runs")
