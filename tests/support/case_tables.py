"""Tables of expected behaviour for the tests of core and plugins, and data files of every format.

`tables/` holds the project's own rows. A folder `shared/cases` beside the checkout may add rows to a table of the
same name; `shared/data` beside it holds public data sets that are not ours to ship, so tests of those are skipped
elsewhere, and `data/` here holds small files of the same formats for everybody.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
TABLES = HERE / "tables"
OWN_DATA = HERE / "data"
SHARED = HERE.parents[1].parent / "shared"


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@functools.cache
def _table(name: str) -> tuple[dict[str, Any], ...]:
    ours = _rows(TABLES / f"{name}.jsonl")
    assert ours, f"there is no table {name}"
    known = {row["id"] for row in ours}
    return (*ours, *(row for row in _rows(SHARED / "cases" / f"{name}.jsonl") if row["id"] not in known))


def table(name: str, *functions: str) -> list[dict[str, Any]]:
    """The rows of a table; with `functions`, those whose field `fn` is one of them."""
    return [row for row in _table(name) if not functions or row["fn"] in functions]


def params(name: str, keep: Callable[[dict[str, Any]], bool] = bool) -> list[Any]:
    """A parameter for each row of a table that `keep` takes, with the row's id."""
    return [pytest.param(row, id=str(row["id"])) for row in _table(name) if keep(row)]


def field_case(ident: str) -> dict[str, Any]:
    """The case made after a public bug report: {"id", "input": {"files": {name: text}, "mock_server": [...], ...}}."""
    (found,) = [row for row in _table("field_cases") if row["id"] == ident]
    return found


def real_data(name: str) -> Path:
    """A file of the public data beside the checkout; the test is skipped where it is absent."""
    path = SHARED / "data" / name
    if not path.exists():
        pytest.skip(f"needs ../shared/data/{name}")
    return path


def data_files() -> dict[str, Path]:
    """Files of rollouts and of tasks in every format that is read: our own, and the real ones where present."""
    real = SHARED / "data"
    found = {path.name: path for path in sorted(OWN_DATA.iterdir())}
    for path in sorted(real.glob("*/*")):
        if path.suffix in (".json", ".jsonl", ".gz"):
            found[str(path.relative_to(real))] = path
    return found


def data_rows(own: str, real: str) -> list[dict[str, Any]]:
    """The rows of a file of our own, then those of the real file of the same format where it is present."""
    return _rows(OWN_DATA / own) + _rows(SHARED / "data" / real)
