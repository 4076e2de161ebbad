"""The writers that come with the product: a JSONL file, the same compressed, and standard output."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from atropos_cli.sdk import DataError, ScoredGroup
from atropos_cli.sdk.commands import data_stream
from atropos_cli.sdk.outputs import GroupFile, Writer, ZstGroupFile, encode_group


class JsonlWriter(Writer):
    """groups.jsonl in the run folder: one group a line."""

    name = "jsonl"
    filename = "groups.jsonl"
    _file_class: type[GroupFile] = GroupFile
    _file: GroupFile | None = None

    def open(self, folder: Path | None, *, prefix: str, fsync: str = "interval") -> Iterator[int]:
        if folder is None:
            raise DataError(f"writer {self.name!r} needs a run folder", hint="give --output a folder")
        self._file = self._file_class(folder / str(self.filename), prefix=prefix, fsync=fsync)
        return self._file.recover()

    def write(self, groups: tuple[ScoredGroup, ...]) -> None:
        assert self._file is not None
        self._file.write(groups)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class ZstWriter(JsonlWriter):
    """groups.jsonl.zst: the same lines, one zstd frame a task."""

    name = "jsonl.zst"
    filename = "groups.jsonl.zst"
    _file_class = ZstGroupFile


class StdoutWriter(Writer):
    """Groups as JSON lines on standard output, for a pipe. Nothing can be resumed."""

    name = "stdout"

    def open(self, folder: Path | None, *, prefix: str, fsync: str = "interval") -> Iterator[int]:
        return iter(())

    def write(self, groups: tuple[ScoredGroup, ...]) -> None:
        # Past the stream's own buffer: a reader that goes away must be seen now, as BrokenPipeError.
        view = memoryview(b"".join(encode_group(group) + b"\n" for group in groups))
        fd = data_stream().fileno()
        while view:
            view = view[os.write(fd, view) :]

    def close(self) -> None:
        return None
