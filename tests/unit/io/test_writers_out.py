"""Outputs: every kind reads back, files appear whole or not at all, splits follow tasks, cards tell the truth."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from records_support import Reading, write_rows

from atropos_cli.errors import DataError, RunExists, UsageError
from atropos_cli.io.card import Card, card_data, write_card
from atropos_cli.io.sources import find_sources
from atropos_cli.io.writers_out import KINDS, DataOutput, OutputSpec, open_output, split_of

ROWS: list[dict[str, Any]] = [
    {"prompt": f"p{i}", "completion": "a\u2028b ä" * (i % 3 + 1), "score": i / 7, "n": i, "extra": None}
    for i in range(25)
]


def write(target: Path, rows: list[dict[str, Any]], **spec: Any) -> DataOutput:
    with open_output(OutputSpec(str(target), **spec)) as out:
        for row in rows:
            out.write(row, task=row.get("prompt", ""))
    return out


def stop_midway(target: Path, **spec: Any) -> None:
    with open_output(OutputSpec(str(target), **spec)) as out:
        for row in ROWS:
            out.write(row)
        raise RuntimeError


def read(*paths: Path) -> list[dict[str, Any]]:
    return [record.raw for record in Reading(*paths).records]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_reads_back(tmp_path: Path, kind: str) -> None:
    if kind in ("parquet", "datasets"):
        pytest.importorskip("pyarrow")
    if kind == "datasets":
        pytest.importorskip("datasets")
    target = tmp_path / ("out" if kind == "datasets" else f"out.{kind}")
    out = write(target, ROWS, kind="datasets" if kind == "datasets" else None)
    assert out.files == [target]
    assert read(target) == ROWS
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_datasets_folder_loads_with_the_library(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    write(tmp_path / "ds", ROWS, kind="datasets", validation=0.3)
    loaded = datasets.load_from_disk(str(tmp_path / "ds"))
    assert set(loaded) == {"train", "validation"}
    assert sorted(row["n"] for split in loaded.values() for row in split) == list(range(25))


def test_parquet_columns_of_several_types(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows: list[dict[str, Any]] = [{"completion": "c", "info": None, "empty": {}, "deep": {"a": 1}} for _ in range(1200)]
    rows += [
        {"completion": "c", "info": "late text", "deep": {"a": 1.5, "b": ["x"]}},
        {"completion": "c", "info": {"k": [1, 2]}, "new": True},
    ]
    out = write(tmp_path / "o.parquet", rows)
    assert any("'info'" in note for note in out.notes)
    back = read(tmp_path / "o.parquet")
    assert [json.loads(row["info"]) for row in back[-2:]] == ["late text", {"k": [1, 2]}]
    assert back[-2]["deep"] == {"a": 1.5, "b": ["x"]}
    assert back[0]["deep"] == {"a": 1.0}
    assert back[-1]["new"] is True


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        stop_midway(tmp_path / "o.jsonl", shard_size=2)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_output_is_kept_until_the_new_one_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "o.jsonl"
    target.write_text("old\n")
    with pytest.raises(RunExists, match=r"o\.jsonl is already there"):
        open_output(OutputSpec(str(target)))
    with pytest.raises(RuntimeError):
        stop_midway(target, overwrite=True)
    assert target.read_text() == "old\n"
    write(target, ROWS[:2], overwrite=True)
    assert read(target) == ROWS[:2]


def test_shards_and_splits(tmp_path: Path) -> None:
    out = write(tmp_path / "o.jsonl", ROWS, shard_size=10)
    assert [path.name for path in out.files] == [f"o-0000{i}-of-00003.jsonl" for i in range(3)]
    assert read(*out.files) == ROWS
    with pytest.raises(RunExists):
        write(tmp_path / "o.jsonl", ROWS, shard_size=10)
    write(tmp_path / "o.jsonl", ROWS[:5], shard_size=10, overwrite=True)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["o-00000-of-00001.jsonl"]

    rows = [{"completion": str(i), "prompt": f"t{i % 40}"} for i in range(400)]
    out = write(tmp_path / "s.jsonl", rows, validation=0.25)
    train, validation = (read(path) for path in out.files)
    assert {row["prompt"] for row in train}.isdisjoint(row["prompt"] for row in validation)
    assert 40 < len(validation) < 180
    assert len(train) + len(validation) == 400


def test_split_depends_on_seed_and_task_alone() -> None:
    tasks = [f"t{i}" for i in range(2000)]
    first = [split_of(task, 0.1, 1) for task in tasks]
    assert first == [split_of(task, 0.1, 1) for task in tasks]
    assert first != [split_of(task, 0.1, 2) for task in tasks]
    assert 150 < first.count("validation") < 250
    # A larger share only adds tasks to the validation split.
    assert all(
        split_of(task, 0.2, 1) == "validation" for task, split in zip(tasks, first, strict=True) if split != "train"
    )


def test_what_cannot_be_written_is_said_first(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot infer the format"):
        open_output(OutputSpec(str(tmp_path / "o.txt")))
    with pytest.raises(UsageError, match="standard output takes one stream"):
        open_output(OutputSpec("-", validation=0.1))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("x")
    with pytest.raises(DataError, match="not one that `datasets` wrote"):
        open_output(OutputSpec(str(tmp_path / "folder"), kind="datasets", overwrite=True))
    assert (tmp_path / "folder" / "mine.txt").exists()


def test_card(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", *ROWS)
    reading = Reading(source)
    out = write(tmp_path / "o.jsonl", ROWS)
    card = Card.of(
        "filter",
        find_sources([str(source)]),
        reading.log,
        options={"min_score": 0.5, "note": "<script>"},
        steps=[{"step": "score >= 0.5", "dropped": 3}],
        counts={"kept": 25},
        lineage="rows keep their ids",
    )
    paths = write_card(out, card_data(out, card))
    data = json.loads(paths[0].read_text())
    assert data["sources"][0]["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert data["outputs"] == [{"name": "o.jsonl", "bytes": (tmp_path / "o.jsonl").stat().st_size}]
    assert data["rows"] == {"train": 25}
    assert data["read"]["records"] == 25
    text = paths[1].read_text()
    assert "score >= 0.5" in text
    assert "<script>" not in text
