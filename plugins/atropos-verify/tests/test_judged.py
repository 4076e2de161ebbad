"""What the answer of a reply is: a table of replies (judged.jsonl), and the kinds by their names."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from atropos_verify.answers import gsm8k
from atropos_verify.choices import _PICK, choice_letter
from atropos_verify.cues import CORRECTION, CUE, RETRACTION
from atropos_verify.extract import extract
from atropos_verify.symbolic import math
from atropos_verify.textual import choice, exact
from atropos_verify.wording import plain_text, stated_text
from atropos_verify.written import _MINUS
from verify_support import value

TABLE = Path(__file__).with_name("judged.jsonl")
REWARDS = {"number": gsm8k, "math": math, "choice": choice, "exact": exact}


@pytest.mark.parametrize("task", list(REWARDS))
async def test_table_of_replies(task: str) -> None:
    rows: list[dict[str, Any]] = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
    mine = [row for row in rows if row["task"] == task]
    wrong = [row for row in mine if await value(REWARDS[task], row["gold"], row["reply"]) != row["reward"]]
    assert len(mine) >= 50
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 64. Such an answer is plausible for 3 machines.", "64"),
        ("Die Antwort ist 42. Diese Antwort ist sinnvoll, da 3 > 2.", "42"),
        ("#### 9\n\nThe answer has 1 digit.", "9"),
        ("\\boxed{12}\n\nThe answer satisfies all 3 conditions.", "12"),
        ("The answer is 42.\n<answer>see above</answer>", "42"),
        ("\\boxed{42} or maybe \\boxed{43}", None),
        ("<answer>7; 8</answer>", None),
        ("#### 8, 9", None),
        ("答案是3或4。", None),
        ("\\boxed{15} Wait, no: 17.", "17"),
        ("The answer is 15. That is wrong.", None),
        ("42 is the answer, found in 3 steps.", "42"),
    ],
)
def test_the_answer_is_the_last_place_that_states_one_candidate(text: str, answer: str | None) -> None:
    assert extract(text, "number").text == answer


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is C and neither A nor B.", "C"),
        ("<answer>Choice C</answer>", "C"),
        ("The options are (A) red, (B) blue and (C) green.", None),
        ("Answer: A, C", None),
        ("故选：Ｃ。", "C"),
        ("The answer is A. No, wait: C.", "C"),
        ("I rule out (C).", None),
    ],
)
def test_listing_options_is_no_choice(text: str, letter: str | None) -> None:
    assert choice_letter(text) == letter


def test_the_text_of_an_option_chooses_it() -> None:
    options = ["Rome", "Paris", "Rome Airport"]
    replies = [
        "The answer is Paris.",
        "\\boxed{\\text{Paris}}",
        "Answer: A Rome",
        "The answer is not Rome but Paris.",
        "Oslo",
    ]
    assert [choice_letter(reply, options=options) for reply in replies] == ["B", "B", "A", "B", None]


def test_texts_are_compared_as_normalised_unicode_without_markup() -> None:
    for one, other in (("**Café**", "cafe\u0301"), ("“Ja”", '"ja"'), ("\\text{ﬁre}.", "Fire"), ("Ａ－１", "a-1")):
        assert plain_text(one) == plain_text(other)
    assert plain_text("naive") != plain_text("naïve")
    assert stated_text("The answer is **Oslo**, not Rome.") == "Oslo"


UNITS = [
    "wait, no: 1 ",
    "**",
    "(A) ",
    "is the answer ",
    "| a |\n|---|\n",
    "1 million ",
    "答案是",
    "that is wrong ",
    "[THINK",
    "1,",
    "<a",
]


@pytest.mark.parametrize("unit", UNITS)
def test_hostile_text_takes_linear_time_in_every_task(unit: str) -> None:
    begin = time.process_time()
    for prefix in ("", "The answer is 5. ", "\\boxed{"):
        text = prefix + unit * (20_000 // len(unit))
        extract(text, "number")
        extract(text, "math")
        choice_letter(text)
        stated_text(text)
    assert time.process_time() - begin < 20


LED = {"cue": CUE, "correction": CORRECTION, "retraction": RETRACTION, "pick": _PICK, "minus": _MINUS}


@pytest.mark.parametrize("name", list(LED))
def test_a_pattern_is_found_by_its_words_wherever_it_is_found_without_them(name: str) -> None:
    led = LED[name]
    replies = [json.loads(line)["reply"] for line in TABLE.read_text(encoding="utf-8").splitlines()]
    found = [match[0] for reply in replies for match in led.finditer(reply)]
    assert found == [match[0] for reply in replies for match in led.pattern.finditer(reply)]
    assert len(found) > 5
