"""Paths with a scheme: read through fsspec, refused as outputs, never a local folder."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.errors import DataError, UsageError
from atropos_cli.io.readers import read_records
from atropos_cli.io.remote import is_remote, local_copy, make_folder, shown
from atropos_cli.io.sources import find_sources

fsspec = pytest.importorskip("fsspec")

ROWS = "".join(json.dumps({"prompt": f"q{i}", "completion": "a"}) + "\n" for i in range(3)).encode()


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    system.pipe(
        {
            "/bucket/a.jsonl": ROWS,
            "/bucket/b.jsonl": ROWS.splitlines(keepends=True)[0],
            "/bucket/notes.txt": b"x",
            "/run/groups.jsonl": ROWS,
        }
    )
    system.pipe("/run/log.jsonl", b"{}")
    yield system
    system.store.clear()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "rows.jsonl").write_bytes(ROWS)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


@pytest.mark.parametrize(
    ("address", "records", "names"),
    [
        ("memory://bucket/a.jsonl", 3, ["memory://bucket/a.jsonl"]),
        ("memory://bucket/*.jsonl", 4, ["memory://bucket/a.jsonl", "memory://bucket/b.jsonl"]),
        ("memory://bucket", 4, ["memory://bucket/a.jsonl", "memory://bucket/b.jsonl"]),
        ("memory://run", 3, ["memory://run/groups.jsonl"]),
    ],
)
def test_files_globs_and_folders_are_read(address: str, records: int, names: list[str], memory: Any) -> None:
    sources = find_sources([address])
    assert [source.name for source in sources] == names
    assert len(list(read_records(sources))) == records


def test_a_web_server_and_file_addresses_are_read(server: str, tmp_path: Path) -> None:
    assert len(list(read_records(find_sources([f"{server}/rows.jsonl", f"file://{tmp_path}/rows.jsonl"])))) == 6
    assert Path(local_copy(f"{server}/rows.jsonl")).read_bytes() == ROWS
    assert local_copy("rows.jsonl") == "rows.jsonl"
    with pytest.raises(DataError, match=r"nothere\.jsonl") as caught:
        find_sources([f"{server}/nothere.jsonl?signature=secret"])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("memory://bucket/none.jsonl", "memory://bucket/none.jsonl does not exist"),
        ("memory://bucket/*.parquet", "holds no data files"),
        ("nosuch://bucket/a.jsonl", "Protocol not known"),
        ("http://127.0.0.1:9/a.jsonl", "http://127.0.0.1:9/a.jsonl"),
    ],
)
def test_addresses_that_cannot_be_read(address: str, words: str, memory: Any) -> None:
    with pytest.raises(DataError, match=words.replace("*", r"\*")):
        find_sources([address])


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(DataError, match=r"s3://bucket/a\.jsonl: reading it needs fsspec") as caught:
        find_sources(["s3://key:word@bucket/a.jsonl"])
    assert "atropos-cli[remote]" in str(caught.value.hint)
    assert shown("s3://key:word@bucket/a.jsonl?x=1") == "s3://bucket/a.jsonl"


@pytest.mark.parametrize("address", ["s3://bucket/run", "gs://b/c/d", "hf://datasets/x/y"])
def test_folders_elsewhere_are_refused(address: str, cli: Callable[..., Any], tmp_path: Path) -> None:
    assert is_remote(address)
    with pytest.raises(UsageError, match="is another place"):
        make_folder(Path(address))
    Path("rows.jsonl").write_bytes(ROWS)
    for words in (
        ("gen", "arithmetic", "--backend", "scripted", "--backend.replies", "1", "--limit", "1", "-o", address),
        ("analyze", "rows.jsonl", "--html", f"{address}.html"),
    ):
        result = cli(*words)
        assert result.code == 2, result.stderr
        assert "is another place" in result.stderr
    assert [path.name for path in Path().iterdir()] == ["rows.jsonl"]
