"""Data files as outputs: JSONL (plain, .gz, .zst), parquet, a folder for `datasets`, standard output.

    with open_output(OutputSpec("out.jsonl")) as out:
        out.write({"messages": ...}, task="t1")
    out.files            what was written

Files appear under their names at the end, all or none: until then they have a temporary name beside it.
Rows may be split into shards (`name-00000-of-00003.jsonl`) and into train and validation by task.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, cast

from atropos_cli.errors import DataError, RunExists, UsageError
from atropos_cli.io.append import FULL
from atropos_cli.io.jsonvalue import dump
from atropos_cli.io.remote import make_folder, shown
from atropos_cli.io.scorecolumns import ScoreColumns
from atropos_cli.io.upload import RemoteTarget, is_remote_target, local_name
from atropos_cli.paths import home, put_in_place, real_target
from atropos_cli.streams import data_stream

Kind = Literal["jsonl", "jsonl.gz", "jsonl.zst", "parquet", "datasets"]
_SUFFIXES: tuple[tuple[str, Kind], ...] = (
    (".jsonl", "jsonl"),
    (".json", "jsonl"),
    (".jsonl.gz", "jsonl.gz"),
    (".jsonl.zst", "jsonl.zst"),
    (".parquet", "parquet"),
)
KINDS: tuple[str, ...] = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet", "datasets")


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """Where rows go. target "-" is standard output; kind None is told by the name's ending.

    shard_size: rows in a file. validation: share of tasks (not of rows) that goes to the validation split.
    """

    target: str
    kind: Kind | None = None
    overwrite: bool = False
    shard_size: int | None = None
    validation: float = 0.0
    split_seed: int = 0

    @property
    def to_stdout(self) -> bool:
        return self.target == "-"


def split_of(task: str, validation: float, seed: int = 0) -> str:
    """ "train" or "validation", by a seeded hash of the task: all rows of a task go the same way, on every machine."""
    if validation <= 0:
        return "train"
    digest = blake2b(f"{seed}/{task}".encode("utf-8", "replace"), digest_size=8).digest()
    return "validation" if int.from_bytes(digest, "big") / 2**64 < validation else "train"


def open_output(spec: OutputSpec) -> DataOutput:
    """An output ready for rows. Raises RunExists when it is there already, UsageError for what cannot be done."""
    kind = spec.kind or _kind_of(spec.target)
    if spec.to_stdout:
        if kind != "jsonl" or spec.shard_size or spec.validation:
            raise UsageError("standard output takes one stream of JSON lines", hint="give a file with -o")
        return DataOutput(spec, kind, None)
    if is_remote_target(spec.target):
        return _open_elsewhere(spec, kind)
    if spec.shard_size is not None and (spec.shard_size < 1 or kind == "datasets"):
        raise UsageError("--shard-size needs at least one row a file, and a kind of output that has files")
    if not 0 <= spec.validation < 1:
        raise UsageError(f"validation share {spec.validation} is not between 0 and 1")
    path = Path(home(local_name(spec.target)))
    if kind == "datasets":
        path = real_target(path)
    taken = [found for found in _taken(path, kind, spec) if found.exists()]
    if taken and not spec.overwrite:
        raise RunExists(f"{taken[0]} is already there", hint="--overwrite replaces it, -o names another")
    if taken and path.is_dir() and kind == "datasets" and not _is_dataset(path):
        raise DataError(f"{path} is a folder, but not one that `datasets` wrote", hint="give another -o")
    make_folder(path.parent)
    return DataOutput(spec, kind, path)


def _open_elsewhere(spec: OutputSpec, kind: Kind) -> DataOutput:
    """Files for another place are made here in a folder of their own, and sent when they are whole."""
    if kind == "datasets":
        raise UsageError("a folder of `datasets` is written to this machine", hint="write .parquet or .jsonl there")
    place = RemoteTarget.open(spec.target)
    try:
        if not spec.overwrite:
            names, patterns = _plain_names(place.local, kind, spec), _shard_patterns(place.local, kind, spec)
            place.refuse_existing(names, patterns)
        output = open_output(replace(spec, target=str(place.local), kind=kind, overwrite=False))
    except BaseException:
        place.close()
        raise
    output.place = place
    return output


def has_data_ending(target: str) -> bool:
    """Does the name end like a data file?"""
    return any(target.endswith(suffix) for suffix, _ in _SUFFIXES)


def _kind_of(target: str) -> Kind:
    if target == "-":
        return "jsonl"
    for suffix, kind in _SUFFIXES:
        if target.endswith(suffix):
            return kind
    raise UsageError(
        f"{shown(target)}: cannot infer the format from the file name",
        hint="end it with .jsonl, .jsonl.gz, .jsonl.zst or .parquet, or name the kind (datasets is a folder)",
    )


def _taken(path: Path, kind: Kind, spec: OutputSpec) -> list[Path]:
    """Files the output would replace; shards are found by their pattern."""
    found = [path.with_name(name) for name in _plain_names(path, kind, spec)]
    for pattern in _shard_patterns(path, kind, spec):
        found += sorted(path.parent.glob(pattern))
    return found


def _plain_names(path: Path, kind: Kind, spec: OutputSpec) -> list[str]:
    stem, suffix = _stem(path, kind)
    splits = ("-train", "-validation") if spec.validation and kind != "datasets" else ("",)
    return [f"{stem}{split}{suffix}" for split in splits]


def _shard_patterns(path: Path, kind: Kind, spec: OutputSpec) -> list[str]:
    if not spec.shard_size:
        return []
    stem, suffix = _stem(path, kind)
    splits = ("-train", "-validation") if spec.validation else ("",)
    return [f"{glob_safe(stem + split)}-?????-of-?????{suffix}" for split in splits]


def glob_safe(name: str) -> str:
    """The name with glob characters made literal."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def _is_dataset(path: Path) -> bool:
    return (path / "state.json").exists() or (path / "dataset_dict.json").exists()


def _stem(path: Path, kind: Kind) -> tuple[str, str]:
    """(name without ending, ending)."""
    if kind == "datasets":
        return path.name, ""
    suffix = next((end for end, found in reversed(_SUFFIXES) if path.name.endswith(end) and found == kind), "")
    return path.name[: len(path.name) - len(suffix)], suffix


@dataclass(slots=True)
class _Part:
    """One file while it is written, under a temporary name. Parquet and datasets spool JSON lines first."""

    path: Path
    split: str
    file: IO[bytes]
    rows: int = 0


@dataclass(slots=True)
class DataOutput:
    """Takes rows, puts files in place at the end. Use as a context manager; an exception leaves nothing behind."""

    spec: OutputSpec
    kind: Kind
    path: Path | None
    rows: Counter[str] = field(default_factory=Counter)
    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    """The split of each of the files."""
    columns: set[str] = field(default_factory=set)
    scores: ScoreColumns = field(default_factory=ScoreColumns)
    place: RemoteTarget | None = None
    _parts: list[_Part] = field(default_factory=list)
    _open: dict[str, _Part] = field(default_factory=dict)

    def write(self, row: dict[str, Any] | bytes, *, task: str = "") -> None:
        """Add a row: an object, or a finished line of strict JSON without its newline."""
        if isinstance(row, bytes):
            line = row
        else:
            line = dump(row)
            self.columns.update(row)
            self.scores.see(row)
        self.put(line, split_of(task, self.spec.validation, self.spec.split_seed))

    def put(self, line: bytes, split: str) -> None:
        """Add a finished line whose split is known; its fields are counted elsewhere."""
        self.rows[split] += 1
        if self.path is None:
            data_stream().buffer.write(line + b"\n")
            return
        try:
            part = self._open.get(split)
            if part is None or (self.spec.shard_size is not None and part.rows >= self.spec.shard_size):
                if part is not None:
                    part.file.close()
                part = self._open[split] = self._new_part(split)
            part.file.write(line)
            part.file.write(b"\n")
        except OSError as error:
            raise self._failed(error) from error
        part.rows += 1

    @property
    def total(self) -> int:
        return sum(self.rows.values())

    @property
    def names(self) -> list[str]:
        """What was written, as people know it."""
        return [str(path) if self.place is None else self.place.address(path) for path in self.files]

    def send(self, paths: Sequence[Path]) -> None:
        """Files that belong to the output go where it went."""
        if self.place is not None:
            self.place.send(paths)

    def __enter__(self) -> DataOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.commit()
        else:
            self.abort()

    def commit(self) -> None:
        """Finish the files and give them their names. An output without rows is one empty file."""
        if self.path is None:
            data_stream().buffer.flush()
            return
        try:
            if not self._parts:
                self._open["train"] = self._new_part("train")
            for part in self._parts:
                part.file.close()
            if self.kind == "datasets":
                self._save_dataset()
                return
            for part, final in zip(self._parts, self._names(), strict=True):
                if self.kind == "parquet":
                    _to_parquet(part.path, self.notes)
                _sync(part.path)
                put_in_place(part.path, final)
                self.files.append(final)
                self.splits.append(part.split)
            self._remove_old()
            self._send_all()
        except OSError as error:
            self.abort()
            raise self._failed(error) from error
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Remove what was written. Safe to call twice."""
        for part in self._parts:
            with contextlib.suppress(OSError, ValueError):  # on a full disk what is still to be written fails again
                part.file.close()
            part.path.unlink(missing_ok=True)
        self._parts.clear()
        if self.place is not None and not self.files:
            self.place.close()

    def _failed(self, error: OSError) -> DataError:
        hint = "make room and run it again" if error.errno in FULL else "check the folder, or give another -o"
        where = self.path if self.place is None else self.place.scratch
        return DataError(f"{where} cannot be written: {error.strerror or error}", hint=hint)

    def _new_part(self, split: str) -> _Part:
        assert self.path is not None
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.{len(self._parts)}.tmp")
        part = _Part(temporary, split, _opener(self.kind)(temporary))
        self._parts.append(part)
        return part

    def _names(self) -> list[Path]:
        assert self.path is not None
        stem, suffix = _stem(self.path, self.kind)
        counts = Counter(part.split for part in self._parts)
        seen: Counter[str] = Counter()
        names = []
        for part in self._parts:
            split = f"-{part.split}" if self.spec.validation else ""
            shard = f"-{seen[part.split]:05d}-of-{counts[part.split]:05d}" if self.spec.shard_size else ""
            seen[part.split] += 1
            names.append(self.path.with_name(f"{stem}{split}{shard}{suffix}"))
        return names

    def _remove_old(self) -> None:
        """With --overwrite: shards of the earlier output that this one did not replace."""
        assert self.path is not None
        for old in _taken(self.path, self.kind, self.spec):
            if old not in self.files and old.exists() and self.spec.shard_size:
                old.unlink()

    def _send_all(self) -> None:
        if self.place is not None:
            assert self.path is not None
            self.place.send(self.files)
            self.place.remove_old(_shard_patterns(self.path, self.kind, self.spec), {path.name for path in self.files})

    def _save_dataset(self) -> None:
        """Rows -> parquet -> a folder that datasets.load_from_disk opens; with splits it is a DatasetDict."""
        assert self.path is not None
        try:
            import datasets
        except ModuleNotFoundError as error:
            raise DataError(
                "writing a datasets folder needs datasets", hint="pip install 'atropos-cli[datasets]'"
            ) from error
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        shown = datasets.is_progress_bar_enabled()
        datasets.disable_progress_bars()
        try:
            made = {}
            for part in self._parts:
                _to_parquet(part.path, self.notes)
                made[part.split] = datasets.Dataset.from_parquet(
                    str(part.path), cache_dir=str(temporary / "cache"), split=part.split
                )
            result = datasets.DatasetDict(made) if self.spec.validation else made["train"]
            result.save_to_disk(str(temporary / "data"))
            del made, result
            if self.path.exists():
                shutil.rmtree(self.path)
            (temporary / "data").rename(self.path)
        finally:
            if shown:
                datasets.enable_progress_bars()
            shutil.rmtree(temporary, ignore_errors=True)
            for part in self._parts:
                part.path.unlink(missing_ok=True)
        self.files.append(self.path)
        self.splits.append("train")


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


class _Gzip(gzip.GzipFile):
    """gzip without a name and a time in its header: the same rows make the same bytes."""

    def __init__(self, path: Path) -> None:
        self._under = path.open("wb")
        super().__init__(filename="", fileobj=self._under, mode="wb", compresslevel=6, mtime=0)

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._under.close()


def _opener(kind: Kind) -> Callable[[Path], IO[bytes]]:
    if kind == "jsonl.gz":
        return lambda path: cast(IO[bytes], _Gzip(path))
    if kind == "jsonl.zst":
        try:
            import zstandard
        except ModuleNotFoundError as error:
            raise DataError("writing .zst needs zstandard", hint="pip install 'atropos-cli[zst]'") from error
        compressor = zstandard.ZstdCompressor(level=3)
        return lambda path: compressor.stream_writer(path.open("wb"))
    return lambda path: path.open("wb", buffering=1 << 20)


def _to_parquet(path: Path, notes: list[str]) -> None:
    from atropos_cli.io.parquet import lines_to_parquet

    notes += lines_to_parquet(path)
