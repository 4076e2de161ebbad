"""The rewards that ship with the product."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from atropos_authoring import make_rollout

from atropos_cli.builtin.rewards import contains_answer, exact_match, last_number, length, numeric_match
from atropos_cli.sdk import Task, TokenSpan, assistant, user


def score(reward, answer, reply) -> float:
    task = Task(id="t", prompt=(user("q"),), answer=answer)
    return reward(task, make_rollout(reply, task=task))


@pytest.mark.parametrize(
    ("answer", "reply", "expected"),
    [
        ("yes", "yes", 1.0),
        (" yes ", "\n yes\t", 1.0),
        ("yes", "Yes", 0.0),
        ("yes", "yes.", 0.0),
        ("yes", "", 0.0),
        ("", "", 1.0),
        (4, "4", 1.0),
        (4, "4.0", 0.0),
        (4.5, "4.5", 1.0),
        ("北京", "北京", 1.0),
    ],
)
def test_exact_match(answer, reply, expected):
    assert score(exact_match, answer, reply) == expected


@pytest.mark.parametrize(
    ("answer", "reply", "expected"),
    [
        ("cat", "It is a Cat!", 1.0),
        ("cat", "category", 0.0),
        ("cat", "concat", 0.0),
        ("cat", "concat the cat", 1.0),
        ("cat", "the_cat", 1.0),
        ("New York", "in new york.", 1.0),
        ("4", "42", 0.0),
        ("4", "It is 4.", 1.0),
        ("4", "4.5", 0.0),
        ("4", "0.4", 0.0),
        ("4", "1,400", 0.0),
        ("4", "x4", 0.0),
        (4, "(4)", 1.0),
        ("C++", "I use C++ daily", 1.0),
        ("北京", "答案是北京。", 1.0),
        ("straße", "STRASSE", 1.0),
        ("cat", "", 0.0),
    ],
)
def test_contains_answer(answer, reply, expected):
    assert score(contains_answer, answer, reply) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#### 72", 72),
        ("The answer is 72.", 72),
        ("is...72", 72),
        ("it costs $18", 18),
        ("-$5", -5),
        ("$-5", -5),
        ("5 - 3 = 2", 2),
        ("5-3", 3),
        ("x = -4", -4),
        ("x=−4", -4),
        ("(-4)", -4),
        ("1,000", 1000),
        ("1,234,567.50", Fraction("1234567.5")),
        ("1,2,3", None),
        ("1, 2, 3", 3),
        ("12,34", None),
        ("0.50", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("1/2", Fraction(1, 2)),
        ("-1/2", Fraction(-1, 2)),
        ("1/0", None),
        ("7 then 1/0", 7),
        ("12/05/2024", None),
        ("version 1.2.3", None),
        ("6e23", 6 * 10**23),
        ("1e-2", Fraction(1, 100)),
        ("2E+3", 2000),
        ("x2", None),
        ("GPT4", None),
        ("a_1", None),
        ("72kg", 72),
        ("72%", 72),
        ("\\boxed{72}", 72),
        ("答案是72", 72),
        ("+7", 7),
        ("", None),
        ("none", None),
        ("1e999999999", None),
        ("9" * 500, None),
    ],
)
def test_last_number(text, expected):
    assert last_number(text) == expected


@pytest.mark.parametrize(
    ("reward", "reply", "shown"),
    [
        (numeric_match, "3 and 1,000.50 kg", "1,000.50"),
        (numeric_match, "so -1/2.", "-1/2"),
        (numeric_match, "it is -$5", "-5"),
        (numeric_match, "none", None),
        (exact_match, " Oslo \n", "Oslo"),
    ],
)
def test_what_records_show_as_the_answer(reward, reply, shown):
    task = Task(id="t", prompt=(user("q"),))
    assert reward.extract(task, make_rollout(reply, task=task)) == shown
    assert contains_answer.extract is None


@pytest.mark.parametrize(
    ("answer", "reply", "expected"),
    [
        ("72", "so 48+24 = 72.", 1.0),
        (72, "72.0", 1.0),
        ("72", "72 of 100", 0.0),
        ("0.5", "1/2", 1.0),
        ("1/3", "0.33", 0.0),
        (1e-07, "1e-7", 1.0),
        ("1,000", "1000", 1.0),
        ("-3", "−3", 1.0),
        ("-3", "3", 0.0),
        ("3", "", 0.0),
    ],
)
def test_numeric_match(answer, reply, expected):
    assert score(numeric_match, answer, reply) == expected


@pytest.mark.parametrize(
    ("reward", "answer"),
    [
        (exact_match, None),
        (exact_match, ["a"]),
        (exact_match, True),
        (contains_answer, None),
        (contains_answer, " "),
        (numeric_match, "seven"),
        (numeric_match, ""),
        (numeric_match, "1,2"),
        (numeric_match, float("1e300") * 10),
    ],
)
def test_an_answer_that_cannot_be_compared_is_an_error_not_a_zero(reward, answer):
    if answer == float("1e301"):
        assert score(reward, answer, "1e301") == 1.0
        return
    with pytest.raises((TypeError, ValueError), match="task t"):
        score(reward, answer, "reply")


def test_length_is_the_servers_count_else_the_sampled_tokens():
    assert length.weight == 0.0
    task = Task(id="t")
    assert length(task, make_rollout("a", completion_tokens=7)) == 7.0
    spans = [
        user("q").replace(tokens=TokenSpan(ids=(1, 2, 3))),
        assistant("a").replace(tokens=TokenSpan(ids=(4, 5), mask=True)),
        assistant("b").replace(tokens=TokenSpan(ids=(6, 7, 8), mask=(False, True, True))),
    ]
    assert length(task, make_rollout(spans)) == 4.0
    with pytest.raises(ValueError, match="neither"):
        length(task, make_rollout("a"))
    with pytest.raises(ValueError, match="neither"):
        length(task, make_rollout([user("q")]))


@pytest.mark.parametrize("unit", ["1,", "1.", "1/", "1e", "-", "a1 ", "$", "1e-", "9"])
def test_the_time_does_not_explode_with_the_length(unit):
    """CPU seconds for a hundred times the text stay near a hundred times as many."""
    text = unit * 200_000
    began = time.process_time()
    last_number(text)
    assert time.process_time() - began < 5.0


@pytest.mark.parametrize("marks", ["<think>{}</think>", "[THINK]{}[/THINK]", "◁think▷{}◁/think▷"])
def test_thinking_earns_nothing(marks):
    replies = (marks.format("5") + "It is 7.", marks.format("7") + "5", marks.split("{")[0] + "5")
    for reward in (contains_answer, numeric_match, exact_match):
        assert [score(reward, "5", reply) for reply in replies] == [0.0, 1.0, 0.0]
