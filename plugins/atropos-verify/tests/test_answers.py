"""Verdicts: the case table, field reports, and real model answers with labels."""

from __future__ import annotations

import json
import time
from typing import Any

import case_tables
import pytest
from atropos_verify.answers import gsm8k, gsm8k_strict, number_reward
from atropos_verify.errors import GoldError, VerifierTimeout
from atropos_verify.extract import extract
from atropos_verify.symbolic import answer, math, math_reward
from atropos_verify.verdict import (
    NeedsWorker,
    defer,
    gold_answers,
    judge_math,
    judge_number,
)
from verify_support import value

from atropos_cli.sdk import ConfigError


@pytest.mark.parametrize("row", case_tables.params("answers"))
async def test_case(row: dict[str, Any]) -> None:
    style = "number" if row["task"] == "gsm8k" else "math"
    assert extract(row["output"], style).text == row["expected_extracted"]
    begin = time.monotonic()
    assert await value(gsm8k if style == "number" else math, row["gold"], row["output"]) == row["expected"]
    assert time.monotonic() - begin < 60
    if row["expected_strict"] is not None:
        assert await value(gsm8k_strict, row["gold"], row["output"]) == row["expected_strict"]


FIELD: dict[str, list[float]] = {
    "E01": [1, 1, 1, 0],
    "E02": [1, 1],
    "E04": [1, 1, 0],
    "E05": [1, 1, 1, 0],
    "E07": [1, 1, 1, 0, 0],  # one rule: a bare number is taken in the gold's unit, so 0.64 is not 64 %
    "E08": [1, 1, 1, 0],
    "E10": [1, 1, 1, 1, 1, 0, 0, 0],
    "E12": [0, 1, 0, 1],
    "E14": [1] * 20,
    "E29": [0, 1, 0, 1, 1],
}


@pytest.mark.parametrize("row", case_tables.params("field_cases", lambda row: row["id"] in FIELD))
async def test_field_report(row: dict[str, Any]) -> None:
    lines = [json.loads(line) for line in row["input"]["files"]["r.jsonl"].splitlines()]
    assert [await value(answer, line["answer"], line["completion"]) for line in lines] == FIELD[row["id"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("So \\boxed{-3}", "-3"),
        ("\\boxed{$1,234.50}", "1234.5"),
        ("\\boxed{72 \\text{ dollars}}", "72"),
        ("\\boxed{n = 72}", "72"),
        ("\\fbox{72}", "72"),
        ("\\boxed{5} and then \\boxed{7", None),
        ("\\$72", "72"),
        ("#### **72**", "72"),
        ("#### n = 72", "72"),
        ("#### Step 1: add\n#### Step 2\nThe answer is 5.", "5"),
        ("[answer]72[/answer] or 5", "72"),
        ("<answer>72 apples</answer>", "72"),
        ("<answer>The answer is 72</answer>, since 5", "72"),
        ("Final Answer: The final answer is $5$. I hope it is correct. 9", "5"),
        ("**Answer:** 5 of the 9", "5"),
        ("Answer:\n\n5", "5"),
        ("The answer is:\n\\[ 72 \\]\nas 9", "72"),
        ("The answer is 3 + 4 = 7.", "7"),
        ("The answer is 3 + 4", "3 + 4"),
        ("The answer is not 5 but 6. So 8.", "6"),
        ("Her answer was wrong. It is 7", "7"),
        ("The answer is ten (10).", "10"),
        ("It takes 1 1/2 hours", "1.5"),
        ("He has 1/3", "1/3"),
        ("½ cup", "0.5"),
        ("5-3", None),
        ("between 10-15", None),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("7 x 10^3", "7000"),
        ("1{,}000", "1000"),
        ("10,00,000", "1000000"),
        ("the numbers 3,4", "4"),
        ("Rs.50", "50"),
        ("ask GPT4", None),
        ("the answer is 42</s>junk 7", "42"),
        ("the answer is 7<|im_end|>\n<|im_start|>user\n8", "7"),
        ("<THINKING>5</THINKING>6", "6"),
        ("5 <think>6</think>", None),
        ("5 <think>6", None),
    ],
)
def test_numbers_are_found(text: str, expected: str | None) -> None:
    assert extract(text, "number").text == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("48 cm", "48 cm"),
        ("$\\frac12$", "\\frac12"),
        ("I think it cannot be done", None),
        ("It follows that x = 5", None),
        ("The answer is $x=5$ and $x=7$.", "x=5 and x=7"),
        ("The answer is $\\frac{1}{2}$, since it is.", "\\frac{1}{2}"),
        ("The answer is $\\$36$.", "\\$36"),
        ("The answer is (1, 2).", "(1, 2)"),
        ("The answer is 5, because 2+3=5", "5"),
        ("Answer: (B)", "(B)"),
        ("The answer is:\n\n$$x=5$$", "x=5"),
        ("<answer>The answer is 5</answer>", "5"),
        ("\\boxed{\\frac{1}{2}", None),
        ("\\boxed{}", None),
        ("\\boxed{\\boxed{7}}", "7"),
        ("\\boxed{\\{1,2\\}}", "\\{1,2\\}"),
        ("#### \\frac12", "\\frac12"),
        ("even", "even"),
        ("The answer is 0.5.", "0.5"),
    ],
)
def test_mathematics_is_found(text: str, expected: str | None) -> None:
    assert extract(text, "math").text == expected


async def test_reasoning_kept_apart_is_never_read() -> None:
    """Field report B13: no content, and the answer only in what the server returned as reasoning."""
    from verify_support import make_rollout, make_task

    rollout = make_rollout(None, reasoning="6*7 is 42, so \\boxed{42}")
    assert gsm8k(make_task("42"), rollout) == 0.0
    assert await math(make_task("42"), rollout) == 0.0


async def test_gold_answers() -> None:
    assert gold_answers("He has 3+4=7.\n#### 7,000") == ("7,000",)
    assert gold_answers("so $\\boxed{\\frac{1}{2}}$.") == ("\\frac{1}{2}",)
    assert gold_answers(72) == ("72",)
    assert await value(gsm8k, ["7", "8"], "The answer is 8") == 1.0
    for bad in (None, "", "  ", {"a": 1}, []):
        with pytest.raises(GoldError):
            gold_answers(bad)
    with pytest.raises(GoldError, match="twelve"):
        await value(gsm8k, "twelve", "12")
    with pytest.raises(GoldError, match="mathematics"):
        await value(math, "\\frac{1}{\\", "\\boxed{x^2+1}")


async def test_tolerance_and_options() -> None:
    near = number_reward(tolerance=1e-3)
    assert [await value(near, "3.1416", text) for text in ("3.14", "3.1414", "3.0")] == [1.0, 1.0, 0.0]
    assert await value(math_reward(tolerance=1e-3), "\\frac{1}{3}", "\\boxed{0.333}") == 1.0
    for bad in ({"tolerance": -1}, {"tolerance": 2}, {"deadline": 0}):
        with pytest.raises(ConfigError):
            math_reward(**bad)  # type: ignore[arg-type]


async def test_auto_style() -> None:
    """`answer` takes the last number of a text for a plain gold number; `math` wants an answer that is marked."""
    prose = "so there are 12 left, I think, of them"
    assert (await value(answer, "12", prose), await value(math, "12", prose)) == (1.0, 0.0)
    assert await value(answer, "2\\sqrt{2}", "\\boxed{\\sqrt{8}}") == 1.0


def test_hostile_length_takes_linear_time() -> None:
    units = ["\\boxed{", "#### 1", "answer is ", "answer to ", "1 ", "1,", "1/", "\\frac", "$", "<answer>", "  ", "\n",
             "Question:\n", "<think></think>", ". A", "**", "½", "-", "9"]  # fmt: skip
    begin = time.process_time()
    for unit in units:
        for prefix in ("", "the answer is ", "\\boxed{", "<answer>"):
            for style in ("number", "math"):
                extract(prefix + unit * (60_000 // len(unit)), style)
    assert time.process_time() - begin < 60


GSM8K = case_tables.data_rows("gsm8k.jsonl", "gsm8k/test.jsonl")
MATH = case_tables.data_rows("math.jsonl", "math_rollouts/math500_test.jsonl")


def solutions() -> list[tuple[str, str, bool]]:
    gold = {row["question"]: row["answer"] for row in GSM8K}
    return [
        (gold[row["question"]], entry["solution"], entry["is_correct"])
        for row in case_tables.data_rows("gsm8k_solutions.jsonl", "gsm8k/example_model_solutions_first300.jsonl")
        for entry in row.values()
        if isinstance(entry, dict)
    ]


def test_real_gsm8k_solutions_agree_with_their_labels() -> None:
    found = solutions()
    wrong = [
        (gold[-20:], text[-60:], label)
        for gold, text, label in found
        if judge_number(gold_answers(gold)[0], text).correct != label
    ]
    assert len(found) in (16, 1216)
    assert wrong == []


def test_gold_solutions_earn_full_marks() -> None:
    for row in GSM8K:
        assert judge_number(gold_answers(row["answer"])[0], row["answer"], strict=True).correct
    for row in MATH:
        for text in (row["solution"], f"The answer is ${row['answer']}$."):
            try:
                assert judge_math(row["answer"], text, defer).correct, (row["answer"], text[-80:])
            except NeedsWorker:
                pytest.fail(f"{row['answer']} is spelled as the gold and needs no worker")


async def test_gold_of_another_problem_earns_nothing() -> None:
    answers = list(dict.fromkeys(row["answer"] for row in MATH))
    accepted = []
    for i, gold in enumerate(answers):
        other = answers[(i + 7) % len(answers)]
        if await value(math, gold, f"\\boxed{{{other}}}"):
            accepted.append((gold, other))
    assert accepted == []


async def test_real_math_answers_agree_with_their_labels() -> None:
    """All disagreements are errors of the labels: a time of day, and a thousands separator in the gold."""
    found = case_tables.data_rows("math_replies.jsonl", "math_rollouts/math_cot_100.jsonl")
    differ = [
        (row["answer"], bool(verdict))
        for row in found
        for text, label in zip(row["code"], row["score"], strict=True)
        if bool(verdict := await value(math, row["answer"], text)) != label
    ]
    errors_of_labels = [("\\text{4:30 p.m.}", True)] * 8 + [("10{,}000", True)]
    assert differ == (errors_of_labels if len(found) > 4 else [])


async def test_a_verdict_that_hangs_is_a_failure_not_a_zero() -> None:
    slow = math_reward(deadline=0.5)
    with pytest.raises(VerifierTimeout, match=r"0\.5 s"):
        await value(slow, "x+y", "\\boxed{(x+y+z+w)^{400}}")
    assert await value(slow, "2\\sqrt{2}", "\\boxed{\\sqrt{8}}") == 1.0
