"""Choices, exact text, patterns, JSON, layout, lengths, repetition, and rewards made of others."""

from __future__ import annotations

import math
from typing import Any

import case_tables
import pytest
from atropos_verify.answers import gsm8k, gsm8k_strict
from atropos_verify.combine import combined
from atropos_verify.errors import GoldError, VerifierError, VerifierTimeout
from atropos_verify.layout import format_reward, tags_in_order, think_answer_format, think_format
from atropos_verify.shaping import (
    completion_length,
    cosine_scaled,
    length_adjusted,
    length_adjusted_score,
    length_penalty_reward,
    repeated_share,
    repetition_penalty_reward,
    soft_overlong_penalty,
    soft_overlong_reward,
)
from atropos_verify.symbolic import answer
from atropos_verify.symbolic import math as math_answer
from atropos_verify.textual import choice, choice_letter, choice_reward, exact_reward, json_schema_reward, regex_reward
from verify_support import make_rollout, make_task, value

from atropos_cli.sdk import ConfigError, Message, Reward, Rollout, Task, TokenSpan, group_reward, reward


@pytest.mark.parametrize(
    ("text", "letter", "strict"),
    [
        ("The answer is (B).", "B", "B"),
        ("Answer: C", "C", "C"),
        ("**Answer: D**", "D", "D"),
        ("\\boxed{\\text{(A)}}", "A", "A"),
        ("\\boxed{B}", "B", "B"),
        ("<answer>E</answer>", "E", "E"),
        ("B", "B", "B"),
        ("B) Paris", "B", "B"),
        ("The correct answer is option C because it fits.", "C", "C"),
        ("I would choose (A), no, (D).", "D", None),
        ("So **B** it is", "B", None),
        ("answer: (b)", "B", "B"),
        ("c", "C", "C"),
        ("The answer is a dog.", None, None),
        ("A dog is not an answer here", None, None),
        ("I think so", None, None),
        ("The answer is A dog", None, None),
        ("<think>(A)</think>", None, None),
        ("<think>The answer is A", None, None),
        ("", None, None),
    ],
)
def test_choice_letters(text: str, letter: str | None, strict: str | None) -> None:
    assert (choice_letter(text), choice_letter(text, strict=True)) == (letter, strict)


async def test_choice_gold_as_letter_index_or_text() -> None:
    options = ["Rome", "Paris"]
    for gold in ("B", "(B)", 1, "Paris"):
        assert await value(choice, gold, "Answer: B", choices=options) == 1.0
        assert await value(choice_reward(strict=True), gold, "Answer: A", choices=options) == 0.0
    assert await value(choice, "B", "The answer is **Paris**.", choices=options) == 1.0
    assert await value(choice, "B", "<answer>rome</answer>", choices=options) == 0.0
    assert await value(choice, "B", "It is Paris or Rome", choices=options) == 0.0
    for gold in ("Oslo", 2, True, None):
        with pytest.raises(GoldError, match="choices"):
            await value(choice, gold, "B", choices=options)


async def test_exact_text() -> None:
    exact = exact_reward()
    assert await value(exact, "New York", "  new\n york. ") == 1.0
    assert await value(exact, "New York", "The answer is New York, since it is big.") == 1.0
    assert await value(exact, ["NY", "New York"], "<answer>NY</answer>") == 1.0
    assert await value(exact, "7", "so \\boxed{7} or 8") == 1.0
    assert await value(exact_reward(ignore_case=False), "NY", "ny") == 0.0
    assert await value(exact_reward(whole=True), "NY", "The answer is NY.") == 0.0
    assert await value(exact, "NY", "<think>NY") == 0.0
    with pytest.raises(GoldError):
        await value(exact, None, "x")


async def test_patterns() -> None:
    assert await value(regex_reward(r"^\d+$"), None, "<think>x</think> 12 ") == 1.0
    assert await value(regex_reward(r"\d+", full=True), None, "12 a") == 0.0
    assert await value(regex_reward("HELLO", flags="i"), None, "oh hello") == 1.0
    assert await value(regex_reward(), None, "abc", pattern="b") == 1.0
    with pytest.raises(GoldError, match="pattern"):
        await value(regex_reward(), None, "abc")
    with pytest.raises(VerifierTimeout):
        await value(regex_reward("(a+)+b", deadline=0.3), None, "a" * 40)
    for bad in ({"pattern": "("}, {"pattern": "a", "flags": "q"}):
        with pytest.raises(ConfigError):
            regex_reward(**bad)


async def test_json_schema() -> None:
    schema = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": False,
    }
    strict = json_schema_reward(schema)
    assert await value(strict, None, '{"a": 1}') == 1.0
    assert await value(strict, None, '```json\n{"a": 1}\n```') == 1.0
    for text in (
        '{"a": "1"}',
        '{"a": 1, "b": 2}',
        '{"a": NaN}',
        '{"a": 1e999}',
        'It is {"a": 1}.',
        "",
        '{"a": 1',
        "[" * 5000,
    ):
        assert await value(strict, None, text) == 0.0, text
    assert await value(json_schema_reward(schema, anywhere=True), None, 'It is {"a": 1}.') == 1.0
    assert await value(json_schema_reward(), None, "[1]", schema={"type": "array"}) == 1.0
    with pytest.raises(GoldError, match="schema"):
        await value(json_schema_reward(), None, "[1]")
    with pytest.raises(VerifierTimeout):
        await value(json_schema_reward({"pattern": "(a+)+b"}, deadline=0.3), None, '"' + "a" * 40 + '"')


@pytest.mark.parametrize(
    ("text", "strict", "loose"),
    [
        ("<think>a</think>\n<answer>b</answer>\n", True, True),
        ("<think>a</think> so <answer>b</answer>", False, True),
        ("<answer>b</answer><think>a</think>", False, False),
        ("<think>a</think><answer>b</answer><answer>c</answer>", False, False),
        ("<think>a</think><answer> </answer>", False, False),
        ("<think>a<answer>b</answer></think>", False, False),
        ("<think>a</think><answer>b", False, False),
        ("a</think><answer>b</answer>", False, False),
        ("</think>a<think><answer>b</answer>", False, False),
        ("", False, False),
    ],
)
def test_layout(text: str, strict: bool, loose: bool) -> None:
    tags = ("think", "answer")
    assert (tags_in_order(text, tags), tags_in_order(text, tags, strict=False)) == (strict, loose)


async def test_layout_rewards() -> None:
    assert await value(think_answer_format, None, "<think>a</think><answer>b</answer>") == 1.0
    replies = ("<think>a</think>b", "a</think>b", "<think>a</think>", "b")
    assert [await value(think_format, None, text) for text in replies] == [1.0, 1.0, 0.0, 0.0]
    for bad in ({"tags": ()}, {"tags": ("a", "a")}, {"tags": ("<a>",)}, {"reply_after": True}):
        with pytest.raises(ConfigError):
            format_reward(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "row", case_tables.params("advantages", lambda row: row["fn"] in ("soft_overlong", "token_length_adjust"))
)
def test_length_case(row: dict[str, Any]) -> None:
    given = row["input"]
    if row["fn"] == "soft_overlong":
        result = soft_overlong_penalty(given["length"], given["max_len"], given["cache"])
    else:
        result = length_adjusted_score(given["score"], given["tokens"], given["baseline"], given["scale"], given["cap"])
    assert result == pytest.approx(row["expected"], abs=row["tol"])


async def test_length_penalties() -> None:
    penalty = length_penalty_reward(100, 200)
    assert [await value(penalty, None, "x", tokens=n) for n in (0, 100, 150, 200, 999)] == [0.0, 0.0, -0.5, -1.0, -1.0]
    no_cache = soft_overlong_reward(100, 0)
    assert [await value(no_cache, None, "x", tokens=n) for n in (100, 101)] == [0.0, -1.0]
    words = length_penalty_reward(1, 3, unit="words")
    assert await value(words, None, "a b") == -0.5
    for bad in ((5, 5), (-1, 5)):
        with pytest.raises(ConfigError):
            length_penalty_reward(*bad)
    with pytest.raises(ConfigError):
        soft_overlong_reward(10, 11)


def test_length_in_tokens_is_counted_not_guessed() -> None:
    assert completion_length(make_rollout("a b", tokens=7)) == 7
    message = Message(role="assistant", content="a", tokens=TokenSpan(ids=(1, 2, 3), mask=True))
    assert completion_length(Rollout(id="r", task_id="t", messages=(message, message))) == 6
    with pytest.raises(VerifierError, match="usage"):
        completion_length(make_rollout("a b"))
    assert completion_length(make_rollout("ab c"), "chars") == 4


async def test_repetition() -> None:
    penalty = repetition_penalty_reward(2)
    assert await value(penalty, None, "a b c d") == 0.0
    assert await value(penalty, None, "a A a a a") == pytest.approx(-0.75)
    assert await value(penalty, None, "a") == 0.0
    assert await value(repetition_penalty_reward(1, 0.5), None, "a a") == -0.25
    with pytest.raises(ConfigError):
        repetition_penalty_reward(0)


async def test_cosine_prefers_short_right_and_long_wrong_answers() -> None:
    scaled = cosine_scaled(gsm8k, max_length=100)
    right = [await value(scaled, "5", "#### 5", tokens=n) for n in (0, 50, 100, 500)]
    wrong = [await value(scaled, "5", "#### 6", tokens=n) for n in (0, 50, 100, 500)]
    assert right == pytest.approx([1.0, 0.75, 0.5, 0.5])
    assert wrong == pytest.approx([-1.0, -0.75, -0.5, -0.5])
    adjusted = length_adjusted(gsm8k, baseline=500)
    assert await value(adjusted, "5", "#### 5", tokens=250) == pytest.approx(1.05)
    assert (scaled.name, adjusted.name) == ("cosine_gsm8k", "gsm8k_by_length")


async def test_combination_and_gate() -> None:
    parts = [gsm8k.with_weight(2.0), think_format.with_weight(0.5)]
    total = combined(parts)
    assert await value(total, "5", "<think>x</think>5") == 2.5
    assert await value(total, "5", "6") == 0.0
    gated = combined(parts, gate=think_format, closed=-1.0)
    assert await value(gated, "5", "5") == -1.0
    assert await value(gated, "5", "<think>x</think>5") == 2.5
    assert await value(combined(parts, bounds=(0.0, 1.0)), "5", "<think>x</think>5") == 1.0


async def test_combination_never_hides_a_failure() -> None:
    @reward
    def broken(task: Task, rollout: Rollout) -> float:
        return math.nan

    @reward
    async def raises(task: Task, rollout: Rollout) -> float:
        raise KeyError("k")

    @group_reward
    def whole(task: Task, rollouts: Any) -> list[float]:
        return [0.0 for _ in rollouts]

    with pytest.raises(VerifierError, match="broken is nan"):
        await value(combined([gsm8k, broken]), "5", "5")
    with pytest.raises(KeyError):
        await value(combined([raises]), "5", "5")
    closed: Reward = combined([broken], gate=think_format)
    assert await value(closed, "5", "5") == 0.0  # the gate is shut: the part is not computed
    for make in (
        lambda: combined([]),
        lambda: combined([whole]),
        lambda: cosine_scaled(whole),
        lambda: combined([gsm8k], gate=whole),
    ):
        with pytest.raises(ConfigError):
            make()
    assert gsm8k(make_task("5"), make_rollout("5")) == 1.0


@pytest.mark.parametrize(
    ("given", "gold", "text", "shown"),
    [
        (gsm8k, "72", "First 70, then 2 more.\nThe answer is 1,072.", "1072"),
        (gsm8k, "72", "<think>71</think>\n#### $72.00", "72"),
        (gsm8k, "72", "no number", None),
        (gsm8k, "72", "<think>72", None),
        (gsm8k_strict, "72", "The answer is 72.", None),
        (gsm8k_strict, "72", "#### 71", "71"),
        (math_answer, "2\\sqrt{2}", "So it is \\boxed{\\sqrt{8}}.", "\\sqrt{8}"),
        (math_answer, "72", "There are 70 and 2 more of them.", None),
        (answer, "72", "There are 70 and 2 more of them.", "2"),
        (answer, ["\\frac{1}{2}", "0.5"], "It must be 0.25 then", "0.25"),
        (answer, "x+1", "The answer is $x + 1$.", "x + 1"),
        (choice, "B", "I would choose (A), no, (D).", "D"),
        (choice_reward(strict=True), "B", "I would choose (A), no, (D).", None),
        (exact_reward(), "Oslo", "<think>Rome</think>The answer is Oslo.", "Oslo"),
        (exact_reward(whole=True), "Oslo", " The answer is Oslo. ", "The answer is Oslo."),
        (json_schema_reward({"type": "object"}), None, '```json\n{"a": [1]}\n```', {"a": [1]}),
        (json_schema_reward({"type": "object"}), None, '{"a": ', None),
        (combined([think_format.with_weight(0.1), gsm8k]), "5", "<think>4</think>5", "5"),
        (cosine_scaled(gsm8k), "5", "#### 6", "6"),
        (length_adjusted(gsm8k.with_weight(2.0)), "5", "#### 6", "6"),
    ],
)
def test_what_records_show_as_the_answer(given: Reward, gold: Any, text: str, shown: Any) -> None:
    assert given.extract is not None
    assert given.extract(make_task(gold), make_rollout(text)) == shown


def test_a_choice_by_its_text_is_shown_as_its_letter() -> None:
    assert choice.extract is not None
    task = make_task("A", choices=["Rome", "Paris"])
    assert choice.extract(task, make_rollout("The answer is Paris.")) == "B"


def test_what_reads_no_answer_shows_none() -> None:
    parts = (think_format, length_penalty_reward(), regex_reward("a"))
    assert [reward.extract for reward in (*parts, combined(parts))] == [None] * 4


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("go on and on and on and on and on", 0.3, 0.9),
        ("Go on, go ON; go on! Go on. go on", 0.5, 0.9),
        ("我不知道该怎么做。我不知道该怎么做！我不知道该怎么做。", 0.4, 0.8),
        ("ไม่รู้จะทำอย่างไรดี ไม่รู้จะทำอย่างไรดี ไม่รู้จะทำอย่างไรดี", 0.4, 0.8),
        ("园丁一共种了七行郁金香，每行九个球茎，后来把其中十一个送给邻居。", 0.0, 0.0),
        ("วันนี้อากาศดีมากเราไปเดินเล่นที่สวนกันเถอะ", 0.0, 0.0),
        ("हिन्दी में लिखा हुआ एक छोटा वाक्य", 0.0, 0.0),
    ],
)
def test_repetition_is_told_in_any_script(text: str, least: float, most: float) -> None:
    assert least <= repeated_share(text, 4) <= most
