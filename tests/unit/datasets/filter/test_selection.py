"""Selection functions against the tables of expected behaviour."""

from __future__ import annotations

from typing import Any

import case_tables
import pytest

from atropos_cli.datasets.filter.selection import all_equal, group_spread, ranked


@pytest.mark.parametrize("case", case_tables.params("passk", lambda row: row["fn"] == "best_of_n"))
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
