"""Reading a verdict: every form that is promised, and everything that must not become a number."""

from __future__ import annotations

import contextlib

import pytest
from atropos_judge.errors import AmbiguousVerdict, NoVerdict, OutOfScale
from atropos_judge.scale import Scale
from atropos_judge.verdict import read_verdict
from hypothesis import given
from hypothesis import strategies as st

TEN = Scale.of("0-10")
FIVE = Scale.of("1-5")
PASS = Scale.of("pass-fail")


@pytest.mark.parametrize(
    ("scale", "reply", "score"),
    [
        (TEN, "Score: 8", 8),
        (TEN, "Score: 8/10", 8),
        (TEN, "**Score:** 7", 7),
        (TEN, "**Score: 6**", 6),
        (TEN, "__Score__: 6.", 6),
        (TEN, "## Score\nScore = 6.5", 6.5),
        (TEN, "I see 3 strong points. **Score: 6**", 6),
        (TEN, "Step 1 is right, 2 of 4 are not.\n\nFinal score: 4", 4),
        (TEN, "Score (0-10): 9", 9),
        (TEN, "Overall score out of 10 is hard to say.\nScore: 5 out of 10", 5),
        (TEN, "The score is 3.", 3),
        (TEN, "I would give it a rating of 7 out of 10.", 7),
        (TEN, "I give this 8/10.", 8),
        (TEN, "8", 8),
        (TEN, "**8**", 8),
        (TEN, "8/10", 8),
        (TEN, "Score: 0", 0),
        (TEN, "Score: seven", 7),
        (TEN, "Score: \\boxed{7}", 7),
        (TEN, '{"score": 7}', 7),
        (TEN, '{"SCORE": "8/10", "reason": "3 faults"}', 8),
        (TEN, '{"reason": "Score: 2 would be harsh", "score": 7.5}', 7.5),
        (TEN, '{"score": "seven"}', 7),
        (TEN, '```json\n{"Final Score": 7}\n```', 7),
        (TEN, 'Thinking done.\n{"a": {"score": 1}, "score": 9}', 9),
        (TEN, "<think>Score: 2, no, 3</think>Score: 9", 9),
        (TEN, "Clarity score: 6\nAccuracy score: 8\nScore: 7", 7),
        (TEN, "The reply says 'Score: 10'.\nIt is wrong.\nScore: 1", 1),
        (Scale.of("0-100"), "Score: 80%", 80),
        (Scale.of("-1 to 1"), "Score: -0.5", -0.5),
        (FIVE, "Rating: 4 out of 5", 4),
        (FIVE, "Rating: 4/5 stars", 4),
        (PASS, "Verdict: pass", 1),
        (PASS, "**Verdict:** FAIL", 0),
        (PASS, "It holds.\n\nVerdict: correct", 1),
        (PASS, "yes", 1),
        (PASS, "**No.**", 0),
        (PASS, "Yes, the answers are the same.", 1),
        (PASS, "They differ.\nFAIL", 0),
        (PASS, "1", 1),
        (PASS, '{"SCORE": "True"}', 1),
        (PASS, '{"verdict": "incorrect"}', 0),
        (PASS, '{"pass": true}', 1),
        (PASS, '{"correct": false, "why": "yes and no"}', 0),
        (PASS, "Result: passed", 1),
    ],
)
def test_forms_that_are_read(scale: Scale, reply: str, score: float) -> None:
    assert read_verdict(reply, scale) == score


@pytest.mark.parametrize(
    ("scale", "reply", "error"),
    [
        (TEN, "", NoVerdict),
        (TEN, "I cannot judge this.", NoVerdict),
        (TEN, "There are 3 strong points and 2 weak ones.", NoVerdict),
        (TEN, "In 2024 the answer was 7.", NoVerdict),
        (TEN, '{"SCORE": "True"}', NoVerdict),
        (TEN, '{"score": true}', NoVerdict),
        (TEN, '{"score": null}', NoVerdict),
        (TEN, '{"score": NaN}', NoVerdict),
        (TEN, '{"score": [7]}', NoVerdict),
        (TEN, '{"score": "about right"}', NoVerdict),
        (TEN, '{"points": 7}', NoVerdict),
        (TEN, "Score: N/A", NoVerdict),
        (TEN, "Score: high", NoVerdict),
        (TEN, "<think>Score: 7", NoVerdict),
        (TEN, '{"score": Infinity}', NoVerdict),
        (TEN, '{"score": 11}', OutOfScale),
        (TEN, "Score: 11", OutOfScale),
        (TEN, "Score: -1", OutOfScale),
        (TEN, "Score: 4/5", OutOfScale),
        (TEN, "Score: 80%", OutOfScale),
        (TEN, "1e5", NoVerdict),
        (FIVE, "Score: 0", OutOfScale),
        (TEN, "Score: 7-8", AmbiguousVerdict),
        (TEN, "Score: 7 or 8", AmbiguousVerdict),
        (TEN, "Score: 7,5", AmbiguousVerdict),
        (TEN, "Score: 7. On reflection, score: 4 is fairer, I think.", AmbiguousVerdict),
        (TEN, '{"score": 7} or rather {"score": 4}', AmbiguousVerdict),
        (TEN, "I give 8/10 for style and 3/10 for truth.", AmbiguousVerdict),
        (PASS, "Verdict: not sure", NoVerdict),
        (PASS, "Score: 7", OutOfScale),
        (PASS, "0.5", OutOfScale),
        (PASS, "Yes, but the second part is wrong.", AmbiguousVerdict),
        (PASS, "Verdict: pass\nVerdict: fail because it is late.", AmbiguousVerdict),
        (PASS, "It may pass or fail.", NoVerdict),
    ],
)
def test_forms_that_are_refused(scale: Scale, reply: str, error: type[NoVerdict]) -> None:
    with pytest.raises(NoVerdict) as caught:
        read_verdict(reply, scale)
    assert type(caught.value) is error, caught.value


@given(st.text(max_size=200))
def test_any_text_gives_a_score_on_the_scale_or_a_named_reason(reply: str) -> None:
    for scale in (TEN, FIVE, PASS):
        with contextlib.suppress(NoVerdict):
            assert read_verdict(reply, scale) in scale


@given(st.integers(0, 10), st.text(alphabet="abc 123.\n", max_size=80))
def test_the_line_that_was_asked_for_wins(score: int, prose: str) -> None:
    assert read_verdict(f"{prose}\nScore: {score}", TEN) == score


@pytest.mark.parametrize(
    "reply",
    ["{" * 200_000, "Score: " * 30_000, '{"score":' * 20_000, "*" * 100_000, "9" * 99_000, "score" + "*" * 90_000],
)
def test_hostile_replies_take_no_time(reply: str) -> None:
    """Nested braces, repeated labels and long runs of marks end in a reason, not in a stack overflow."""
    with pytest.raises(NoVerdict):
        read_verdict(reply, TEN)


@pytest.mark.parametrize("text", ["10", "5-1", "a-b", "pass", ""])
def test_what_is_no_scale(text: str) -> None:
    with pytest.raises(ValueError, match="is no scale"):
        Scale.of(text)


def test_values_of_scores() -> None:
    assert [FIVE.value(score) for score in (1, 3, 5)] == [0.0, 0.5, 1.0]
    assert [str(Scale.of(text)) for text in ("1 to 5", "0-10", "Pass/Fail", "-1..1")] == [
        "1-5",
        "0-10",
        "pass-fail",
        "-1-1",
    ]
    assert Scale.of("-1-1") == Scale.of("-1 to 1")
