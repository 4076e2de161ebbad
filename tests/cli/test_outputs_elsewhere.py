"""Data files written to s3://, gs:// and the like: whole or not at all, and never lost."""

from __future__ import annotations

import json
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

fsspec = pytest.importorskip("fsspec")

CLI = Callable[..., Any]


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


@pytest.fixture
def rows() -> str:
    lines = [
        {"prompt": f"{n}+1?", "completion": str(n + right), "task_id": f"t{n}", "reward": float(right)}
        for n in range(4)
        for right in (0, 1)
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "rows.jsonl"


def names(system: Any, folder: str = "/bucket") -> list[str]:
    return sorted(Path(name).name for name in system.find(folder))


def test_each_command_writes_there_and_reads_it_back(cli: CLI, memory: Any, rows: str) -> None:
    pytest.importorskip("pyarrow")
    steps = (
        ("filter", rows, "--min-score", "0", "-o", "memory://bucket/kept.jsonl"),
        ("merge", "memory://bucket/kept.jsonl", "-o", "memory://bucket/all.jsonl"),
        ("score", "memory://bucket/all.jsonl", "--reward", "numeric_match", "-o", "memory://bucket/scored.jsonl"),
        ("sft-gen", "memory://bucket/all.jsonl", "--group", "-o", "memory://bucket/sft.parquet"),
        ("dpo-gen", "memory://bucket/all.jsonl", "--group", "-o", "memory://bucket/dpo.jsonl.gz"),
        ("prompt-gen", "memory://bucket/all.jsonl", "--group", "-o", "memory://bucket/verl.parquet"),
    )
    for words in steps:
        done = cli(*words)
        assert done.code in (0, 1 if words[0] == "score" else 0), done.stderr
        assert f"wrote {words[-1]}" in done.stdout
        assert f"{words[-1]}.card.json".removeprefix("memory://bucket/") in names(memory)
    assert len(memory.cat("/bucket/kept.jsonl").splitlines()) == 8
    assert cli("analyze", "memory://bucket/sft.parquet", "--json").json["read"]["rollouts"] == 4
    assert [path.name for path in Path().iterdir()] == ["rows.jsonl"]


def test_an_object_that_is_there_is_kept_without_overwrite(cli: CLI, memory: Any, rows: str) -> None:
    memory.pipe("/bucket/x.jsonl", b"old")
    done = cli("filter", rows, "-o", "memory://bucket/x.jsonl")
    assert (done.code, "already there" in done.stderr) == (6, True)
    assert memory.cat("/bucket/x.jsonl") == b"old"
    assert cli("filter", rows, "-o", "memory://bucket/x.jsonl", "--overwrite").code == 0
    assert len(memory.cat("/bucket/x.jsonl").splitlines()) == 8
    done = cli("filter", "memory://bucket/x.jsonl", "-o", "memory://bucket/x.jsonl", "--overwrite")
    assert (done.code, "is an input" in done.stderr) == (2, True)


def test_shards_and_splits(cli: CLI, memory: Any, rows: str) -> None:
    words = ("filter", rows, "-o", "memory://bucket/x.jsonl", "--shard-size")
    assert cli(*words, "3").code == 0
    assert [name for name in names(memory) if "card" not in name] == [f"x-0000{i}-of-00003.jsonl" for i in range(3)]
    assert cli(*words, "3").code == 6
    done = cli(*words, "5", "--overwrite", "--json")
    assert done.json["files"] == [f"memory://bucket/x-0000{i}-of-00002.jsonl" for i in range(2)]
    assert [name for name in names(memory) if "card" not in name] == [f"x-0000{i}-of-00002.jsonl" for i in range(2)]
    assert cli("filter", rows, "-o", "memory://bucket/y.jsonl", "--validation", "0.5").code == 0
    assert {"y-train.jsonl", "y-validation.jsonl"} <= set(names(memory))


def test_rows_that_cannot_be_sent_stay_here(
    cli: CLI, memory: Any, rows: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(self: Any, lpath: str, rpath: str, **more: Any) -> None:
        raise ConnectionResetError("the line is cut")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(type(memory), "put_file", broken)
    done = cli("sft-gen", rows, "--group", "-o", "memory://bucket/x.jsonl")
    assert done.code == 6
    assert "the line is cut" in done.stderr
    assert memory.find("/bucket") == []
    (kept,) = tmp_path.glob("atropos-kept-*/x.jsonl")
    assert str(kept.parent) in done.stderr
    assert len(kept.read_text().splitlines()) == 4


def test_a_file_system_with_names_gets_a_temporary_one_first(
    cli: CLI, rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """local:// is fsspec's own file system: what sftp:// and hdfs:// do, too."""
    system = fsspec.filesystem("local")
    seen: list[str] = []
    put = type(system).put_file

    def watched(self: Any, lpath: str, rpath: str, **more: Any) -> Any:
        seen.append(Path(rpath).name)
        return put(self, lpath, rpath, **more)

    monkeypatch.setattr(type(system), "put_file", watched)
    done = cli("filter", rows, "-o", f"local://{tmp_path}/new/x.jsonl")
    assert done.code == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "x.jsonl",
        "x.jsonl.card.json",
        "x.jsonl.card.md",
    ]
    assert seen
    assert all(name.endswith(".tmp") for name in seen)


def test_file_addresses_are_paths(cli: CLI, rows: str, tmp_path: Path) -> None:
    assert cli("filter", rows, "-o", f"file://{tmp_path}/a%20b.jsonl").code == 0
    assert (tmp_path / "a b.jsonl").exists()


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("nosuch://bucket/x.jsonl", 6, "cannot be written"),
        ("https://example.org/x.jsonl", 2, "is read, not written"),
        ("memory://bucket/", 2, "cannot infer the format"),
        ("memory://bucket/folder", 2, "cannot infer the format"),
    ],
)
def test_places_that_nobody_can_write_to(cli: CLI, memory: Any, rows: str, address: str, code: int, words: str) -> None:
    done = cli("filter", rows, "-o", address)
    assert (done.code, words in done.stderr) == (code, True), done.stderr
    assert "hint:" in done.stderr
    assert [path.name for path in Path().iterdir()] == ["rows.jsonl"]


def test_other_refusals(cli: CLI, memory: Any, rows: str) -> None:
    done = cli("filter", rows, "-o", "memory://bucket/x", "--write", "datasets")
    assert (done.code, "written to this machine" in done.stderr) == (2, True)
    done = cli("sft-gen", rows, "-o", "memory://bucket/x.jsonl", "--recipe", "axolotl")
    assert (done.code, "files of this machine" in done.stderr) == (2, True)
    Path("bad.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"x": 1}\n')
    done = cli("filter", "bad.jsonl", "--tolerant", "-o", "memory://bucket/x.jsonl")
    assert done.code == 0, done.stderr
    assert b"bad.jsonl" in memory.cat("/bucket/x.jsonl.rejects.jsonl")


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("simplecache::memory://bucket/x.jsonl", 2, "an address in an address is read, not written"),
        ("zip://x.jsonl::https://me:hunter22@host/r.zip", 2, "zip://x.jsonl::https://"),
        ("nosuch://me:hunter22@bucket/x.jsonl", 6, "is the scheme spelt right?"),
        ("ftp://me:hunter22@127.0.0.1:1/x.jsonl", 6, "check the address and the access to it"),
        ("memory://bucket/x?sig=hunter22", 2, "memory://bucket/x: cannot infer the format"),
    ],
)
def test_addresses_that_cannot_be_written_to(
    cli: CLI, memory: Any, rows: str, target: str, code: int, said: str
) -> None:
    done = cli("filter", rows, "-o", target)
    assert (done.code, said in done.stderr) == (code, True), done.stderr
    assert "hunter22" not in done.stdout + done.stderr
    assert [path.name for path in Path().iterdir()] == ["rows.jsonl"]


def test_schemes_are_read_in_capitals_and_one_within_another(cli: CLI, memory: Any, rows: str) -> None:
    assert cli("filter", rows, "-o", "MEMORY://bucket/x.jsonl").code == 0
    assert cli("filter", rows, "-o", Path("a b.jsonl").absolute().as_uri().replace("file:", "FILE:")).code == 0
    assert len(Path("a b.jsonl").read_bytes().splitlines()) == 8
    for name in ("MEMORY://bucket/x.jsonl", "simplecache::memory://bucket/x.jsonl"):
        assert cli("analyze", name, "--json").json["read"]["rollouts"] == 8


def test_the_next_step_names_what_was_written(cli: CLI, memory: Any, rows: str) -> None:
    words = ("sft-gen", rows, "--group", "-o")
    for given, named in (
        (("memory://bucket/x.jsonl",), "memory://bucket/x.jsonl"),
        (("x.jsonl", "--validation", "0.5"), "x-train.jsonl"),
        (("y.jsonl", "--shard-size", "2"), "'y-?????-of-00002.jsonl'"),
    ):
        assert f"next: atropos train sft --data {named} --model" in cli(*words, *given).stderr
    assert (
        "next: atropos sft-gen memory://bucket/y.jsonl -o"
        in cli("filter", rows, "-o", "memory://bucket/y.jsonl").stderr
    )


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.parquet", "shards"])
def test_a_disk_without_room_is_named_and_nothing_half_stays(cli: CLI, name: str) -> None:
    if name == "x.parquet":
        pytest.importorskip("pyarrow")
    lines = [{"prompt": f"{n}", "completion": random.Random(n).randbytes(2000).hex(), "reward": 1} for n in range(200)]
    Path("rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shards = ("--shard-size", "100") if name == "shards" else ()
    target = "x.jsonl" if name == "shards" else name
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, old[1]))
    try:
        done = cli("filter", "rows.jsonl", "-o", target, *shards)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert done.code == 6
    assert "File too large" in done.stderr
    assert f"{target} cannot be written" in done.stderr
    assert [path.name for path in Path().iterdir()] == ["rows.jsonl"]
