"""Files of every kind give the same rows by index; what is wrong is named with its place."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from atropos_datasets.rows import open_file
from dataset_support import lines, listed, tasks

from atropos_cli.sdk import ConfigError, DataError

ROWS = [{"prompt": f"p{n} \N{GREEK SMALL LETTER ALPHA}", "answer": n, "nested": {"x": [n]}} for n in range(9)]


def write(kind: str, path: Path) -> Path:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
    if kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif kind == "folder":
        datasets = pytest.importorskip("datasets")
        datasets.DatasetDict({"test": datasets.Dataset.from_list(ROWS)}).save_to_disk(str(path))
    else:
        path.write_bytes(
            {
                "jsonl": text,
                "blank lines": b"\n" + text.replace(b"\n", b"\r\n \n"),
                "bom": b"\xef\xbb\xbf" + text,
                "no end": text.rstrip(),
                "gz": gzip.compress(text[:100]) + gzip.compress(text[100:]),
                "array": json.dumps(ROWS, indent=1).encode(),
                "array.gz": gzip.compress(json.dumps(ROWS).encode()),
            }[kind]
        )
    return path


@pytest.mark.parametrize(
    "kind", ["jsonl", "blank lines", "bom", "no end", "gz", "array", "array.gz", "parquet", "folder"]
)
def test_every_kind_of_file(kind: str, tmp_path: Path) -> None:
    found = tasks(write(kind, tmp_path / "data"), "test", info_fields=("nested",))
    assert len(found) == 9
    for n in (8, 0, 4):
        assert found[n].prompt[-1].text == ROWS[n]["prompt"]
        assert found[n].answer == n
        assert found[n].info == {"task_name": "data", "nested": {"x": [n]}}
        assert found[n].id == f"test-{n}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no rows"),
        (b"\n \n", "holds no rows"),
        (b"[]", "holds no rows"),
        (b'{"prompt": "a", "answer": 1}\n\n{"prompt": ', r"d\.jsonl:3: not a line of JSON"),
        (b'{"prompt": "a", "answer": 1}\n[1]\n', r"d\.jsonl:2: a list, not a JSON object"),
        (b'{"prompt": "a", "answer": NaN}\n', r"d\.jsonl:1: not a line of JSON"),
        (b'{"prompt": "a", "answer": 1}\n{"prompt": "b"}\n', r"d\.jsonl:2: there is no field 'answer'.*prompt"),
        (b'{"prompt": "a", "answer": null}\n', r"d\.jsonl:1: field 'answer' is null"),
        (b'{"prompt": "a", "answer": " "}\n', r"d\.jsonl:1: the answer is empty"),
        (b'{"prompt": " ", "answer": 1}\n', r"d\.jsonl:1: field 'prompt' holds ' '"),
        (b'{"prompt": 3, "answer": 1}\n', r"d\.jsonl:1: field 'prompt' holds 3"),
        (b'{"prompt": [{"role": "judge", "content": "x"}], "answer": 1}\n', r"d\.jsonl:1: .*not a list of messages"),
        (b"[" * 100_000, "not a JSON array"),
        (b'{"a":' * 100_000, "not a line of JSON"),
        (b'[{"prompt": "a", "answer": 1}, 2]', "row 1: a int"),
        (b"\x1f\x8b\x08damaged", "not a whole gzip file"),
        (b"\x28\xb5\x2f\xfd....", "zstd"),
        (b"PAR1....", "not a readable parquet file"),
        (b'{"prompt": "\xff", "answer": 1}\n', r"d\.jsonl:1: not a line of JSON"),
    ],
)
def test_bad_data_is_refused_at_the_start(content: bytes, message: str, tmp_path: Path) -> None:
    if content.startswith(b"PAR1"):
        pytest.importorskip("pyarrow")
    path = tmp_path / "d.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        tasks(path)


def test_half_a_surrogate_pair_is_text(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"prompt": "a\\ud83d", "answer": "\\ud83d\\ude00"}\n')
    (task,) = listed(tmp_path / "d.jsonl")
    assert (task.prompt[0].text, task.answer) == ("a\N{REPLACEMENT CHARACTER}", "\N{GRINNING FACE}")


def test_a_large_file_costs_little_memory(tmp_path: Path) -> None:
    path = lines(tmp_path / "d.jsonl", ({"prompt": f"{n} " + "x" * 2000, "answer": n} for n in range(5000)))
    tracemalloc.start()
    try:
        found = tasks(path)
        assert found[4999].answer == 4999
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 10
    finally:
        tracemalloc.stop()


def test_the_place_of_a_row_counts_blank_lines(tmp_path: Path) -> None:
    rows = open_file(str(write("blank lines", tmp_path / "d")))
    assert [rows.where(n).rpartition(":")[2] for n in (0, 1, 8)] == ["2", "4", "18"]
    rows.close()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ConfigError, "has no data"),
        ({"path": "nowhere.jsonl"}, DataError, "nowhere.jsonl does not exist"),
        ({"path": "d", "hub": "a/b"}, ConfigError, "exclude each other"),
        ({"path": "d", "config_name": "main"}, ConfigError, "--config-name main exclude each other"),
    ],
)
def test_sources_that_cannot_be(
    options: dict[str, Any], error: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from atropos_datasets.environment import DatasetConfig, DatasetEnvironment

    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        DatasetEnvironment(DatasetConfig(**options))


def test_a_wrong_config_for_a_local_copy_of_gsm8k(tmp_path: Path) -> None:
    from atropos_datasets.ready import Gsm8k

    path = lines(tmp_path / "d.jsonl", [{"question": "1+1?", "answer": "#### 2"}])
    assert len(tasks(path, "test", cls=Gsm8k)) == 1
    with pytest.raises(ConfigError, match="--config-name socratic exclude"):
        tasks(path, "test", cls=Gsm8k, config_name="socratic")


@pytest.mark.parametrize(
    ("part", "first", "count"),
    [("[:100]", 0, 9), ("[2:5]", 2, 3), ("[-2:]", 7, 2), ("[:33%]", 0, 3), ("[50%:]", 4, 5), ("[:-8]", 0, 1)],
)
def test_a_part_of_a_file(part: str, first: int, count: int, tmp_path: Path) -> None:
    found = tasks(write("jsonl", tmp_path / "d"), data_split=part)
    assert [task.id for task in found] == [f"train-{n}" for n in range(first, first + count)]


@pytest.mark.parametrize(
    ("part", "error"), [("test", ConfigError), ("train[:3]", ConfigError), ("[5:2]", DataError), ("[9:]", DataError)]
)
def test_parts_that_a_file_does_not_have(part: str, error: Any, tmp_path: Path) -> None:
    with pytest.raises(error):
        tasks(write("jsonl", tmp_path / "d"), data_split=part)


def test_rows_are_shuffled_by_the_seed_and_keep_their_ids(tmp_path: Path) -> None:
    path = write("jsonl", tmp_path / "d")
    plain, mixed, again = listed(path), listed(path, shuffle_seed=1), listed(path, shuffle_seed=1)
    assert mixed == again != plain
    assert sorted(mixed, key=lambda task: task.id) == plain
    assert listed(path, shuffle_seed=2) != mixed
