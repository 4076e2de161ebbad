"""VR-CLI and the memory block against the tables of worked rows."""

from __future__ import annotations

import math
import time
from typing import Any

import case_tables
import pytest
from atropos_textworld.agent import blocks, vrcli
from atropos_textworld.agent.credit import total
from atropos_textworld.agent.options import AgentOptions


def number(value: Any) -> Any:
    if isinstance(value, list):
        return [number(item) for item in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def run(fn: str, given: dict[str, Any]) -> Any:
    if fn == "vrcli":
        score = vrcli.vrcli(
            number(given["base_logprobs"]), number(given["cond_logprobs"]), prediction=given.get("prediction")
        )
        return {
            "improvement_pct": score.improvement_pct,
            "discrete": score.discrete,
            "continuous": score.continuous,
            "flag": score.flag,
        }
    if fn == "combine":
        weights = {"vrcli_weight": given["w_vrcli"], "format_weight": given["w_format"]}
        options = AgentOptions(group_by="turn", vrcli="continuous", **weights)
        return total(options, env=given["env"], vrcli=given["vrcli"], form=given["format"])
    return getattr(vrcli, fn)(**{key: number(value) for key, value in given.items()})


OURS = {"vrcli", "discretize", "continuous", "combine"}


@pytest.mark.parametrize("row", case_tables.params("vrcli", lambda row: row["fn"] in OURS))
def test_vrcli_rows(row: dict[str, Any]) -> None:
    expected, tolerance = row["expected"], row.get("tol", 1e-9)
    if isinstance(expected, dict) and "error" in expected:
        with pytest.raises(vrcli.UnscorableError) as caught:
            run(row["fn"], row["input"])
        assert caught.value.kind == expected["error"]
        return
    got = run(row["fn"], row["input"])
    if not isinstance(expected, dict):
        expected, got = {"value": number(expected)}, {"value": got}
    for key, value in expected.items():
        assert got[key] == (pytest.approx(value, abs=tolerance) if isinstance(value, float) else value), key


def test_an_overflow_is_the_worst_prediction_not_a_crash() -> None:
    score = vrcli.vrcli([-1.0], [-5000.0])
    assert score.improvement_pct == -math.inf
    assert (score.discrete, score.continuous) == (0.0, 0.0)


def test_an_identical_pass_is_exactly_zero() -> None:
    score = vrcli.vrcli([-0.3, -7.1, -2.2], [-0.3, -7.1, -2.2])
    assert (score.improvement_pct, score.discrete, score.continuous) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("row", case_tables.params("memory", lambda row: row["kind"] == "extract"))
def test_memory_rows(row: dict[str, Any]) -> None:
    got = blocks.extract_memory(row["text"])
    assert {
        "status": got.status,
        "memory": got.memory,
        "tag": got.tag,
        "format_ok": got.format_ok,
    } == row["expected"]


@pytest.mark.parametrize(
    "row", [r for r in case_tables.table("memory") if r["kind"] == "format_reward"], ids=lambda r: str(r["id"])
)
def test_format_reward_rows(row: dict[str, Any]) -> None:
    assert blocks.format_reward(row["text"]) == pytest.approx(row["expected"])


def test_hostile_replies_take_linear_time() -> None:
    for text in ("<memory>" * 20_000, "<think>" * 20_000, "<tool_call><memory>" * 10_000, "</memory>" * 20_000):
        begin = time.process_time()
        blocks.extract_memory(text)
        blocks.format_reward(text)
        assert time.process_time() - begin < 2
