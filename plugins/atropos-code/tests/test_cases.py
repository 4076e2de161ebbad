"""Every row of the table of cases, at every level of isolation that works here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import case_tables
import pytest
from atropos_code import prediction
from atropos_code.outcomes import Limits
from atropos_code.sandbox import Sandbox


@pytest.fixture(scope="module", params=["namespaces", "bubblewrap", "process"])
def level(request: pytest.FixtureRequest, usable: Callable[[str], str]) -> Iterator[Sandbox]:
    with Sandbox(isolation=usable(request.param)) as box:
        yield box


@pytest.mark.parametrize("row", case_tables.params("codeexec", lambda row: row["kind"] == "exec"))
def test_execution(level: Sandbox, row: dict[str, Any]) -> None:
    if row["id"] == "fork-child" and not level.isolation.can_limit_processes:
        pytest.skip("programs cannot start processes at this level here")
    result = level.run(row["code"], stdin=row["stdin"], limits=Limits(timeout_s=row["timeout_s"]))
    assert (result.outcome, result.reward) == (row["expected"]["class"], row["expected"]["reward"]), result


@pytest.mark.parametrize("row", case_tables.params("codeexec", lambda row: row["kind"] == "predict"))
def test_prediction(row: dict[str, Any]) -> None:
    proposer, opponent = prediction.scores(
        row["actual_output"], row["predicted_output"], ran_ok=row["ran_ok"], deterministic=row["deterministic"]
    )
    assert {"proposer": proposer, "opponent": opponent} == row["expected"]
