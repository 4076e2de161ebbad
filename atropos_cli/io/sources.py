"""Where rows come from: files of any kind, run folders, globs, standard input, as streams of JSON objects.

    .jsonl .json (one value a line, an array, or one object)   also .gz and .zst
    .parquet, a folder written by `datasets`                   need pyarrow
    a run folder                                               its groups file, and those of its ranks
    a folder of data files, a glob, `-` (standard input)
    any of these but a run of several ranks under scheme://  needs fsspec

Every stream is read once, in constant memory; one line or one array element is held at a time.
"""

from __future__ import annotations

import glob
import io
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from atropos_cli.errors import DataError, UsageError
from atropos_cli.io.remote import copies, is_remote
from atropos_cli.paths import home, shell

GROUPS = ("groups.jsonl", "groups.jsonl.zst")
_DATA = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".jsonl.zst", ".json.zst", ".parquet")
_NO_DATA = frozenset({"failures.jsonl", "log.jsonl", "plan.json", "summary.json", "totals.json"})
_RUN = ("plan.json", "train.json")
_RECORDS = frozenset({"metrics.jsonl", "samples.jsonl", "train.json", "eval.json", "exit.json", "job.json"})
"""Files of a run that hold no rollouts."""

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """One readable file. path None is standard input. run: the run folder it belongs to.

    begin, end, before: a piece of a plain file of lines, in bytes, and the number of lines before it (`io.cutting`).
    """

    name: str
    path: Path | None
    kind: str
    run: Path | None = None
    begin: int = 0
    end: int | None = None
    before: int = 0

    def open(self, start: int = 0) -> IO[bytes]:
        """The decompressed bytes; `raw.problem` tells at the end whether compressed data was whole.

        start: bytes of the file to leave out, which end with a line (of compressed data: with a frame).
        """
        if self.path is None:
            return sys.stdin.buffer
        try:
            file = self.path.open("rb", buffering=1 << 17)  # lines are longer than the default
        except OSError as error:
            raise DataError(f"{self.name}: {error.strerror}") from error
        if self.end is not None:
            return io.BufferedReader(_Piece(file, self.begin + start, self.end), _CHUNK)
        file.seek(start)
        head = file.read(4)
        file.seek(start)
        # The first bytes decide, not the name: a .jsonl may be compressed, a .gz may not be.
        if head[:2] == b"\x1f\x8b":
            return io.BufferedReader(_GzipStream(file), _CHUNK)
        if head == b"\x28\xb5\x2f\xfd":
            return io.BufferedReader(_ZstdStream(file), _CHUNK)
        return file


def find_sources(paths: Sequence[str]) -> list[Source]:
    """The files behind the arguments, in their order. Raises DataError for one that is not there."""
    if not paths:
        raise UsageError("no input file given", hint="name a file, a run folder, a glob, or - for standard input")
    if list(paths).count("-") > 1:
        raise UsageError("standard input (-) is named twice")
    sources: list[Source] = []
    for text in paths:
        if text == "-":
            sources.append(Source("standard input", None, "lines"))
            continue
        if is_remote(text):
            sources += [_file(name, copy) for name, copy in copies(text, _data_files)]
            continue
        text = home(text)
        path = Path(text)
        if path.is_dir():
            sources += _folder(path, text)
        elif path.exists():
            sources.append(_file(text, path))
        else:
            magic = glob.has_magic(text)
            found = sorted(glob.glob(text, recursive=True)) if magic else []  # noqa: PTH207 - keeps the name as given
            if not found:
                what = "matches nothing" if magic else "does not exist"
                near = None if magic else nearest(path)
                raise DataError(
                    f"{text} {what}",
                    hint=f"did you mean {near}?" if near else "give a file, a run folder, a glob in quotes, or -",
                )
            sources += find_sources(found)
    return sources


def nearest(path: Path) -> str | None:
    """The entry beside a path that does not exist whose name is most like it."""
    from difflib import get_close_matches

    try:
        names = sorted(item.name for item in path.parent.iterdir())[:10_000]
    except OSError:
        return None
    close = get_close_matches(path.name, names, n=1, cutoff=0.75)
    return str(path.parent / close[0]) if close else None


def _folder(path: Path, name: str) -> list[Source]:
    for groups in GROUPS:
        if (path / groups).is_file():
            whole = Source(os.path.join(name, groups), path / groups, "lines", run=path)  # noqa: PTH118 - keeps "./"
            ranks = sorted(path.glob(f"ranks/*/{groups}"), key=lambda part: part.parts)
            return [whole, *(Source(str(part), part, "lines") for part in ranks)]
    arrow = sorted(path.glob("*.arrow"))
    if (path / "state.json").exists() and arrow:
        return [Source(str(file), file, "arrow") for file in arrow]
    files = sorted(file for file in path.iterdir() if file.is_file() and _is_data(file.name))
    if any((path / mark).exists() for mark in _RUN):
        files = [file for file in files if file.name not in _RECORDS]
        if not files:
            raise _no_rollouts(path, name)
    if not files:
        splits = [sub for sub in sorted(path.iterdir()) if (sub / "state.json").exists()]
        if splits:
            return [source for sub in splits for source in _folder(sub, str(sub))]
        raise DataError(
            f"{name} is a folder without a groups file or data files", hint=f"it holds no {', '.join(_DATA)}"
        )
    return [_file(str(file), file) for file in files]


def _no_rollouts(path: Path, name: str) -> DataError:
    """What to say of a run that wrote none: it trained on stored rows, or did not come so far."""
    if (path / "metrics.jsonl").exists():
        curves = path / "curves.html"
        told = f"its curves are in {curves}" if curves.exists() else "its numbers are in metrics.jsonl"
        return DataError(f"{name} is a training run without rollouts of its own", hint=told)
    shard = next((found for groups in GROUPS for found in path.glob(f"shards/*/{groups}")), None)
    if shard is not None:
        return DataError(f"{name} is a run in shards that are not joined yet", hint=f"name one of them: {shard.parent}")
    return DataError(f"{name} is a run without rollouts so far", hint=f"{shell('runs', path)} shows its state")


def _file(name: str, path: Path) -> Source:
    return Source(name, path, "parquet" if path.suffix == ".parquet" else "lines")


def _data_files(names: list[str]) -> list[str]:
    """The data files among the names in a folder: its groups where it is a run."""
    base = {name: name.rstrip("/").rpartition("/")[2] for name in names}
    groups = [name for groups in GROUPS for name in names if base[name] == groups]
    return groups[:1] or [name for name in names if _is_data(base[name])]


def _is_data(name: str) -> bool:
    return (
        name.endswith(_DATA) and name not in _NO_DATA and not name.startswith(".") and not name.endswith(".card.json")
    )


def spool(source: Source, folder: Path | None = None) -> Source:
    """A source that can be read twice: standard input is copied to a file in `folder` (removed by the caller)."""
    if source.path is not None:
        return source
    fd, name = tempfile.mkstemp(prefix="atropos-stdin-", suffix=".jsonl", dir=folder)
    with os.fdopen(fd, "wb") as file:
        while chunk := sys.stdin.buffer.read(_CHUNK):
            file.write(chunk)
    return Source(source.name, Path(name), "lines")


class _Piece(io.RawIOBase):
    """The bytes of a file from one place to another."""

    def __init__(self, file: IO[bytes], begin: int, end: int) -> None:
        self._file = file
        self._begin = begin
        self._end = end
        self._file.seek(begin)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: self._begin, os.SEEK_CUR: self._file.tell(), os.SEEK_END: self._end}[whence]
        return self._file.seek(base + offset) - self._begin

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), max(0, self._end - self._file.tell())))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _Decompressed(io.RawIOBase):
    """Frames of compressed data one after another, as one stream.

    Damage does not raise, because a buffer above this would lose the data before it: the stream ends, and
    `problem` says why. torn: whole frames came before, and the last one is cut.
    """

    problem: str | None = None
    torn = False

    def __init__(self, file: IO[bytes], chunk: int) -> None:
        self._file = file
        self._size = chunk
        self._frame: Any = None
        self._frames = 0
        self._input = b""
        self._output = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._output and self.problem is None:
            chunk = self._input or self._file.read(self._size)
            self._input = b""
            if not chunk:
                if self._frame is None:
                    return 0
                self.problem, self.torn = "the data is cut", self._frames > 0
                return 0
            self._fill(chunk)
        count = min(len(buffer), len(self._output))
        buffer[:count] = self._output[:count]
        self._output = self._output[count:]
        return count

    def _fill(self, chunk: bytes) -> None:
        raise AssertionError("each kind of compression has its own")

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _GzipStream(_Decompressed):
    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, 1 << 17)

    def _fill(self, chunk: bytes) -> None:
        if self._frame is None:
            chunk = chunk.lstrip(b"\0") if self._frames else chunk  # padding behind a member
            if not chunk:
                return
            self._frame = zlib.decompressobj(wbits=31)
        try:
            self._output = memoryview(self._frame.decompress(chunk, _CHUNK))
        except zlib.error as error:
            self.problem = str(error)
            return
        self._input = self._frame.unconsumed_tail
        if self._frame.eof:
            self._input = self._frame.unused_data
            self._frame = None
            self._frames += 1


class _ZstdStream(_Decompressed):
    def __init__(self, file: IO[bytes]) -> None:
        try:
            import zstandard
        except ModuleNotFoundError as error:
            file.close()
            raise DataError("reading .zst needs zstandard", hint="pip install 'atropos-cli[zst]'") from error
        super().__init__(file, 1 << 14)
        self._zstandard = zstandard

    def _fill(self, chunk: bytes) -> None:
        if self._frame is None:
            self._frame = self._zstandard.ZstdDecompressor().decompressobj()
        try:
            self._output = memoryview(self._frame.decompress(chunk))
        except self._zstandard.ZstdError as error:
            self.problem = str(error)
            return
        if self._frame.eof:
            self._input = self._frame.unused_data
            self._frame = None
            self._frames += 1


def table_rows(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number from 1, row) of a parquet or arrow file: plain JSON values, no numpy types.

    Raises DataError when pyarrow is missing or the file is none.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise DataError(
            f"{source.name}: reading {source.kind} needs pyarrow", hint="pip install 'atropos-cli[parquet]'"
        ) from error
    number = 0
    try:
        with pa.OSFile(str(source.path), "rb") as file:
            if source.kind == "parquet":
                batches: Any = pq.ParquetFile(file).iter_batches(batch_size=256)
            else:
                batches = pa.ipc.open_stream(file)
            for batch in batches:
                for row in batch.to_pylist():
                    number += 1
                    yield number, {key: plain(value) for key, value in row.items()}
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{source.name}: not a readable {source.kind} file: {error}") from error


def plain(value: Any) -> Any:
    """A table's value as JSON: dates and decimals as text, bytes as text where they are UTF-8.

    Struct fields that hold null are left out: tables add them to every row as soon as one has them.
    """
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if item is not None or key == "content"}
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
