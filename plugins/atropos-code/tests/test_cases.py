"""Every row of the shared table of cases, at every level of isolation that works here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from atropos_code import prediction
from atropos_code.outcomes import Limits
from atropos_code.sandbox import Sandbox

TABLE = Path(__file__).resolve().parents[3].parent / "shared" / "cases" / "codeexec.jsonl"
ROWS: list[dict[str, Any]] = (
    [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()] if TABLE.exists() else []
)
EXEC = [row for row in ROWS if row["kind"] == "exec"]
PREDICT = [row for row in ROWS if row["kind"] == "predict"]


@pytest.fixture(scope="module", params=["namespaces", "bubblewrap", "process"])
def level(request: pytest.FixtureRequest, usable: Callable[[str], str]) -> Iterator[Sandbox]:
    with Sandbox(isolation=usable(request.param)) as box:
        yield box


@pytest.mark.skipif(not EXEC, reason="../shared/cases/codeexec.jsonl is not there")
@pytest.mark.parametrize("row", EXEC, ids=lambda row: row["id"])
def test_execution(level: Sandbox, row: dict[str, Any]) -> None:
    if row["id"] == "fork-child" and not level.isolation.can_limit_processes:
        pytest.skip("programs cannot start processes at this level here")
    result = level.run(row["code"], stdin=row["stdin"], limits=Limits(timeout_s=row["timeout_s"]))
    assert (result.outcome, result.reward) == (row["expected"]["class"], row["expected"]["reward"]), result


@pytest.mark.skipif(not PREDICT, reason="../shared/cases/codeexec.jsonl is not there")
@pytest.mark.parametrize("row", PREDICT, ids=lambda row: row["id"])
def test_prediction(row: dict[str, Any]) -> None:
    proposer, opponent = prediction.scores(
        row["actual_output"], row["predicted_output"], ran_ok=row["ran_ok"], deterministic=row["deterministic"]
    )
    assert {"proposer": proposer, "opponent": opponent} == row["expected"]
