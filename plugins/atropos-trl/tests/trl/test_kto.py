"""KTO: what is trained, what is refused, and a loss that falls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trl_support import make_plan, metrics, run

from atropos_cli.sdk import DataError

pytest.importorskip("torch")
pytest.importorskip("trl")


def rows(good: str, bad: str, count: int = 32) -> list[dict[str, Any]]:
    return [
        {"prompt": "abcdefgh"[number % 8], "completion": bad if number % 2 else good, "label": not number % 2}
        for number in range(count)
    ]


def write(path: Path, found: list[dict[str, Any]]) -> tuple[str]:
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return (str(path),)


def test_it_learns_good_from_bad(small: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", rows("2468", "1357"))
    options: dict[str, Any] = {"prompts_per_step": 8, "save_every": 100, "config": {"learning_rate": 5e-3}}
    run(make_plan(small, method="kto", data=data, steps=12, **options), tmp_path / "run")
    found = metrics(tmp_path / "run")
    assert found[0]["loss"] == pytest.approx(0.5, abs=1e-3)
    assert found[-1]["loss"] < 0.4


def test_a_run_is_labelled_by_its_scores(small: Path, tmp_path: Path) -> None:
    """As `dpo-gen --kto` does: good from 0.5 on."""
    ask = [{"role": "user", "content": "abc"}]
    groups = [
        {"prompt": ask, "completion": [{"role": "assistant", "content": text}], "score": score}
        for text, score in (("2468", 0.75), ("1357", 0.25), ("8642", 1.0), ("7531", 0.0))
    ]
    data = write(tmp_path / "rollouts.jsonl", groups)
    from atropos_cli.datasets.stored import stored_rows

    assert [row["label"] for row in stored_rows(data, "labelled")] == [True, False, True, False]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([{"prompt": "a", "completion": "b", "label": "good"}] * 8, "label: expected true or false"),
        ([{"prompt": "a", "label": True}] * 8, "neither a row for kto"),
        ([{"prompt": "a", "completion": "b", "label": True}] * 8, "all 8 completions have the same label"),
        ([{"prompt": "a", "completion": "", "label": True}, *rows("a", "b")], "no 'completion'"),
    ],
)
def test_rows_that_are_refused(small: Path, tmp_path: Path, found: list[dict[str, Any]], words: str) -> None:
    plan = make_plan(small, method="kto", data=write(tmp_path / "rows.jsonl", found), prompts_per_step=8)
    with pytest.raises(DataError, match=words):
        run(plan, tmp_path / "run")
