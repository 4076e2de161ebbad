"""Field cases as files, and records read from text: shared by the tests of readers and of the commands."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from case_tables import field_case

from atropos_cli.datasets.filter.filtering import FilterJob, Write, filter_records, prepare_filter
from atropos_cli.datasets.filter.report import FilterReport
from atropos_cli.io.readers import ReadLog, ReadOptions, Reject, read_records
from atropos_cli.io.records import Record
from atropos_cli.io.sources import find_sources


def case_files(ident: str, folder: Path) -> list[Path]:
    """The files of a field case, written to the folder byte for byte."""
    given = field_case(ident)["input"]
    paths = []
    for name, text in given.get("files", {}).items():
        (folder / name).write_bytes(text.encode("utf-8"))
        paths.append(folder / name)
    for name, text in given.get("files_base64", {}).items():
        (folder / name).write_bytes(base64.b64decode(text))
        paths.append(folder / name)
    return paths


class Reading:
    """Records of files, with everything that was warned and rejected."""

    def __init__(self, *paths: str | Path, **options: Any) -> None:
        self.warnings: list[str] = []
        self.rejects: list[Reject] = []
        self.log = ReadLog(warn=self.warnings.append, on_reject=self.rejects.append)
        self.records: list[Record] = list(self.stream(*paths, **options))

    def stream(self, *paths: str | Path, **options: Any) -> Iterator[Record]:
        return read_records(find_sources([str(path) for path in paths]), ReadOptions(**options), self.log)


def row(ident: str, *replies: str, scores: list[Any] | None = None, prompt: str = "p", **more: Any) -> dict[str, Any]:
    """A group of parallel lists."""
    messages = [[{"role": "user", "content": prompt}, {"role": "assistant", "content": reply}] for reply in replies]
    return {"item_id": ident, "messages": messages, "scores": scores or [1.0] * len(replies), **more}


def write_rows(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run_filter(job: FilterJob, log: ReadLog, write: Write) -> FilterReport:
    """Filter all sources, as the command does; `write` gets each line to keep."""
    work = prepare_filter(job, log)
    filter_records(job, work, log, write)
    return work.finish()
