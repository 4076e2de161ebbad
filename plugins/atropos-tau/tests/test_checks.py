"""What is read in texts: facts, states, messages of the user, verdicts of the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from atropos_tau.checks import communicated, reward_of, state_text
from atropos_tau.judge import read_verdicts
from atropos_tau.user import user_message

CASES = Path(__file__).with_name("cases.jsonl")


def answer(fn: str, given: dict[str, Any]) -> Any:
    if fn == "tau_reward":
        told = all(communicated(fact, given["agent_responses"]) for fact in given["required_outputs"])
        met = {"DB": given["db_equal"], "COMMUNICATE": told}
        return reward_of(["DB", "COMMUNICATE"], met, done=given["done"])
    if fn == "state_equal":
        return state_text(given["a"]) == state_text(given["b"])
    said = user_message(given["strategy"], given["raw"])
    return {"error": said.error} if said.error else {"message": said.text, "stop": said.stop}


def test_the_rows_of_the_table() -> None:
    rows = [json.loads(line) for line in CASES.read_text().splitlines()]
    wrong = [row["id"] for row in rows if answer(row["fn"], row["input"]) != row["expected"]]
    assert not wrong
    assert len(rows) > 10


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        ('{"results": [{"reason": "said so", "met": true}, {"reason": "no", "met": false}]}', [True, False]),
        ('Here:\n```json\n{"results": [{"met": true}, {"met": true}]}\n```', [True, True]),
        ("<think>[true, true]</think>[false, true]", [False, True]),
        ('{"results": [{"expectedOutcome": "a", "metExpectation": true}, {"metExpectation": false}]}', [True, False]),
        ('{"note": {}} and then {"results": [true, false]}', [True, False]),
        ('{"results": [{"met": true}]}', None),
        ('{"results": [{"met": "yes"}, {"met": true}]}', None),
        ("both statements are met", None),
        ("", None),
        ("{" * 100_000, None),
        ("<think>" + '{"results": [true, true]}', None),
    ],
)
def test_verdicts_of_a_judge(text: str, verdicts: list[bool] | None) -> None:
    assert read_verdicts(text, 2) == verdicts
