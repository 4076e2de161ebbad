"""Selection functions against the tables of expected behaviour."""

from __future__ import annotations

import json
from typing import Any

import pytest
from records_support import SHARED

from atropos_cli.engine.data.selection import all_equal, best_of_n, group_spread, ranked, retention, top_n


def cases(file: str, *functions: str) -> list[Any]:
    path = SHARED / "cases" / file
    if not path.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"needs ../shared/cases/{file}"))]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [pytest.param(row, id=row["id"]) for row in rows if row["fn"] in functions]


@pytest.mark.parametrize("case", cases("pairs.jsonl", "sft_top_n"))
def test_sft_top_n(case: dict[str, Any]) -> None:
    given = case["input"]
    found = top_n(
        given["scores"],
        given["n"],
        threshold=given["threshold"],
        op=given["op"],
        min_gap_over_group_min=given["min_gap_over_group_min"],
    )
    assert found == case["expected"]


@pytest.mark.parametrize("case", cases("passk.jsonl", "best_of_n"))
def test_best_of_n(case: dict[str, Any]) -> None:
    assert best_of_n(case["input"]["scores"], case["input"]["lengths"]) == case["expected"]


@pytest.mark.parametrize("case", cases("passk.jsonl", "retention"))
def test_retention(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    found = retention(given["groups"], given["threshold"], given["op"])
    assert (found.kept, found.total) == (expected["kept"], expected["total"])
    for value, wanted in (
        (found.retention, expected["retention"]),
        (found.group_retention, expected["group_retention"]),
    ):
        assert value == (None if wanted is None else pytest.approx(wanted, abs=case["tol"]))


def test_spread() -> None:
    assert group_spread([0.1 + 0.2, 0.3, None]) == pytest.approx(0)
    assert all_equal([0.1 + 0.2, 0.3, None])
    assert not all_equal([1.0, None])
    assert group_spread([1.0]) is None
    assert group_spread([1, 3, 2]) == 2


def test_ranking_with_ties() -> None:
    assert ranked([1, 2, 2, None]) == [1, 2, 0]
    assert ranked([1, 2, 2, None], [5, 9, 3, 0]) == [2, 1, 0]
