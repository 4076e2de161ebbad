"""Shared by the tests of atropos-datasets: small files, environments over them, the shared data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import case_tables
from atropos_datasets.environment import DatasetEnvironment

from atropos_cli.sdk import Task


def field_case(case_id: str, file: Path | None = None) -> dict[str, Any]:
    """The input of a field case; its d.jsonl is written to `file`."""
    case = case_tables.field_case(case_id)
    if file is not None:
        file.write_text(case["input"]["files"]["d.jsonl"], encoding="utf-8")
    return case


def lines(path: Path, rows: Iterable[Any]) -> Path:
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def tasks(path: Path, split: str = "train", cls: type[DatasetEnvironment] = DatasetEnvironment, **options: Any) -> Any:
    """The tasks of an environment over a file."""
    return cls(cls.Config(path=str(path), **options)).tasks(split)


def listed(path: Path, **options: Any) -> list[Task]:
    """All tasks over a file."""
    return list(tasks(path, **options))
