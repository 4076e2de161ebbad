"""The language of --where: what it says, what it refuses, and that it never runs anything else."""

from __future__ import annotations

from typing import Any

import pytest
from records_support import row

from atropos_cli.datasets.filter.expressions import FIELDS, Expression, ExpressionError
from atropos_cli.errors import UsageError
from atropos_cli.io.formats import detect
from atropos_cli.io.records import Record


def record(**more: Any) -> Record:
    raw = row("q", "Hello World", "no", scores=[0.5, None], prompt="2+2?", env="math", **more)
    form = detect(raw)
    assert form is not None
    return form.read(raw, "r.jsonl", 1)


def value(text: str, index: int = 0, **more: Any) -> Any:
    found = record(**more)
    return Expression(text)(found, found.rollouts[index])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("score >= 0.5 and env == 'math' and len(text) < 2000", True),
        ("score > 0.5", False),
        ("not score > 0.5 or false", True),
        ("0 < score <= 0.5", True),
        ("score * 4 - 1 == 1", True),
        ("-score == -0.5", True),
        ("7 // 2 + 7 % 4", 6),
        ("'World' in text", True),
        ("env not in ['code', 'chat']", True),
        ("task in ('q', 'r')", True),
        ("match('^Hello', text)", True),
        ("match('w' + 'orld$', lower(text))", True),
        ("text[0]", "H"),
        ("startswith(text, 'He') and endswith(text, 'ld')", True),
        ("info.level >= 3", True),
        ("info['level'] >= 3", True),
        ("info.missing.deeper is null", True),
        ("info.level if score > 1 else 'low'", "low"),
        ("max(score, 3)", 3),
        ("group_size, group_max, group_min", [2, 0.5, 0.5]),
        ("prompt", "2+2?"),
        ("words", 2),
        ("chars == len(completion)", True),
        ("finish_reason == null", True),
        ("truncated or failed", False),
    ],
)
def test_values(text: str, expected: Any) -> None:
    assert value(text, level=3) == expected


def test_without_a_score_no_ordering_holds() -> None:
    for text in ("score >= 0", "score < 0", "score > -1 or score <= 1"):
        assert value(text, index=1) is False
    assert value("score == null", index=1) is True


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch owned')",
        "text.__class__",
        "().__class__.__bases__",
        "open('x')",
        "eval('1')",
        "lambda: 1",
        "[x for x in text]",
        "f'{text}'",
        "text.upper()",
        "2 ** 999999999",
        "score := 1",
        "len(text, 1)",
        "len(obj=text)",
        "b'x' == text",
        "import os",
        "score >",
        "",
        "1 << 99",
        "*text",
        "match('(', text)",
        "1 +" * 3000 + "1",
    ],
)
def test_refused_before_anything_is_read(text: str) -> None:
    if text == "text.__class__":  # a key of that name in text: refused when it meets the text
        with pytest.raises(ExpressionError, match="text has no '__class__'"):
            value(text)
        return
    if text == "().__class__.__bases__":
        with pytest.raises(ExpressionError, match="a list has no '__class__'"):
            value(text)
        return
    with pytest.raises(UsageError):
        Expression(text)


def test_close_names_are_suggested() -> None:
    with pytest.raises(UsageError) as caught:
        Expression("scor > 1")
    assert caught.value.hint == "did you mean score?"
    with pytest.raises(UsageError) as caught:
        Expression("lenn(text)")
    assert caught.value.hint == "did you mean len?"


@pytest.mark.parametrize(
    "text", ["text > 1", "text * 1000000000", "score / 0", "score['x']", "1 in score", "float(text)"]
)
def test_values_that_do_not_fit_are_told(text: str) -> None:
    with pytest.raises(ExpressionError):
        value(text)


def test_every_field_works_on_every_rollout() -> None:
    assert len(FIELDS) > 5
    for name in FIELDS:
        for index in (0, 1):
            assert value(f"{name} == null", index=index) in (True, False)
