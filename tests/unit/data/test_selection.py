"""Selection functions against the tables of expected behaviour."""

from __future__ import annotations

import json
from typing import Any

import pytest
from records_support import SHARED

from atropos_cli.engine.data.selection import all_equal, group_spread, ranked


def cases(file: str, *functions: str) -> list[Any]:
    path = SHARED / "cases" / file
    if not path.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"needs ../shared/cases/{file}"))]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [pytest.param(row, id=row["id"]) for row in rows if row["fn"] in functions]


@pytest.mark.parametrize("case", cases("passk.jsonl", "best_of_n"))
def test_best_of_n(case: dict[str, Any]) -> None:
    order = ranked(case["input"]["scores"], case["input"]["lengths"])
    assert order[:1] == ([] if case["expected"] is None else [case["expected"]])


def test_spread() -> None:
    assert group_spread([0.1 + 0.2, 0.3, None]) == pytest.approx(0)
    assert all_equal([0.1 + 0.2, 0.3, None])
    assert not all_equal([1.0, None])
    assert group_spread([1.0]) is None
    assert group_spread([1, 3, 2]) == 2


def test_ranking_with_ties() -> None:
    assert ranked([1, 2, 2, None]) == [1, 2, 0]
    assert ranked([1, 2, 2, None], [5, 9, 3, 0]) == [2, 1, 0]
