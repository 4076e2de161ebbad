"""Shared material next to the repository, and one sandbox for all tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from atropos_code.sandbox import Sandbox

SHARED = Path(__file__).resolve().parents[3].parent / "shared"


def shared(*parts: str) -> Path:
    """A file of the shared material; the test is skipped when it is not there."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"../shared/{'/'.join(parts)} is not there")
    return path


def cases(kind: str) -> list[dict[str, Any]]:
    """The rows of one kind in the table of cases; none when it is not there."""
    path = SHARED / "cases" / "codeexec.jsonl"
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["kind"] == kind]


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as box:
        yield box
