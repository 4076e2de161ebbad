"""A resumed training goes on with the rows it learnt from, and with no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_training.datamark import DataMark

from atropos_cli.sdk import DataError
from atropos_cli.sdk.records import stored_rows

ROWS = [{"prompt": f"{n}?", "completion": str(n)} for n in range(5)]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def session(folder: Path, *, resume: bool) -> list[Any]:
    mark = DataMark(folder, resume=resume, keeps=True)
    return list(mark.watch(stored_rows([str(folder / "rows.jsonl")], "demonstrations")))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[:3], "5 rows then, 3 now"),
        (lambda rows: [*rows, rows[0]], "5 rows then, 6 now"),
        (lambda rows: rows[::-1], "of other content or order"),
        (lambda rows: [*rows[:4], {"prompt": "4?", "completion": "four"}], "of other content or order"),
    ],
)
def test_other_rows_under_the_same_name(
    change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], words: str, tmp_path: Path
) -> None:
    write(tmp_path / "rows.jsonl", ROWS)
    assert len(session(tmp_path, resume=False)) == 5
    (tmp_path / "checkpoints/step-2").mkdir(parents=True)
    assert len(session(tmp_path, resume=True)) == 5
    write(tmp_path / "rows.jsonl", change(ROWS))
    for _ in range(2):  # the first refusal changes nothing
        with pytest.raises(DataError, match=words):
            session(tmp_path, resume=True)
    write(tmp_path / "rows.jsonl", ROWS)
    assert len(session(tmp_path, resume=True)) == 5


def test_other_blanks_and_order_of_keys_are_the_same_rows(tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", ROWS)
    session(tmp_path, resume=False)
    (tmp_path / "checkpoints/step-2").mkdir(parents=True)
    lines = [json.dumps(dict(reversed(row.items())), indent=None, separators=(",", ":")) for row in ROWS]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    assert len(session(tmp_path, resume=True)) == 5


def test_nothing_was_learnt_yet(tmp_path: Path) -> None:
    """Stopped before its first step, a run takes other rows, and keeps their mark."""
    write(tmp_path / "rows.jsonl", ROWS)
    session(tmp_path, resume=False)
    write(tmp_path / "rows.jsonl", ROWS[:2])
    assert len(session(tmp_path, resume=True)) == 2
    (tmp_path / "checkpoints/step-1").mkdir(parents=True)
    assert len(session(tmp_path, resume=True)) == 2


def test_a_trainer_that_takes_rows_one_by_one(tmp_path: Path) -> None:
    """It may never come to the last one: all are looked at first, once."""
    write(tmp_path / "rows.jsonl", ROWS)
    mark = DataMark(tmp_path, resume=False, keeps=True)
    mark.look(iter(ROWS))
    assert json.loads((tmp_path / "data.json").read_text())["rows"] == 5
    mark.look(iter([]))  # known already
    (tmp_path / "checkpoints/step-1").mkdir(parents=True)
    with pytest.raises(DataError, match="4 now"):
        DataMark(tmp_path, resume=True, keeps=True).look(iter(ROWS[1:]))


def test_accepted_rows_are_told_and_noted(tmp_path: Path) -> None:
    told: list[str] = []
    write(tmp_path / "rows.jsonl", ROWS)
    session(tmp_path, resume=False)
    (tmp_path / "checkpoints/step-2").mkdir(parents=True)
    for rows in (ROWS[:3], ROWS[::-1], ROWS[::-1]):
        write(tmp_path / "rows.jsonl", rows)
        mark = DataMark(tmp_path, resume=True, keeps=True, accepted=told.append)
        assert len(list(mark.watch(stored_rows([str(tmp_path / "rows.jsonl")], "demonstrations")))) == len(rows)
    assert ["5 rows then, 3 now" in told[0], "3 rows then, 5 now" in told[1], len(told)] == [True, True, 2]
    found = json.loads((tmp_path / "data.json").read_text())
    assert (found["rows"], [mark["rows"] for mark in found["earlier"]]) == (5, [5, 3])
    assert len(session(tmp_path, resume=True)) == 5  # these are its rows now, without being accepted again


def test_another_process_of_the_training_accepts_too_and_writes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", ROWS)
    session(tmp_path, resume=False)
    (tmp_path / "checkpoints/step-2").mkdir(parents=True)
    before = (tmp_path / "data.json").read_bytes()
    helper = DataMark(tmp_path, resume=True, keeps=False, accepted=lambda text: None)
    assert len(list(helper.watch(iter(ROWS[:2])))) == 2
    assert (tmp_path / "data.json").read_bytes() == before
