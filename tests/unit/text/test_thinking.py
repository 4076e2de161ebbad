"""Thinking is what a model's family marks as thinking, wherever it is looked at."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from atropos_view.page import parts

from atropos_cli.datasets.convert.samples import normal
from atropos_cli.io.thinkform import normal_thinking
from atropos_cli.text import thinking
from atropos_cli.text.thinking import FAMILIES, is_mark, split_thinking, thought_text, unknown_mark
from atropos_cli.text.toolcalls import parse_tool_calls

MARKED = [
    ("<think>five?</think>Write `<think>` first. seven", "Write `<think>` first. seven"),
    ("<think>five?</think>The mark '</think>' ends it: seven", "The mark '</think>' ends it: seven"),
    ("[THINK]five?[/THINK]The mark “[THINK]” opens it: seven", "The mark “[THINK]” opens it: seven"),
    ("<think>\nfive?\n</think>\n\nseven", "seven"),
    ("<THINKING>five?</THINKING>seven", "seven"),
    ("<thought>five?</thought >seven", "seven"),
    ("<seed:think>five?</seed:think>seven", "seven"),
    ("<longcat_think>five?</longcat_think>seven", "seven"),
    ("[THINK]five?[/THINK]seven", "seven"),
    ("◁think▷five?◁/think▷seven", "seven"),
    ("<|START_THINKING|>five?<|END_THINKING|><|START_RESPONSE|>seven<|END_RESPONSE|>", "seven"),
    ("<|START_THINKING|>five?<|END_THINKING|><|START_TEXT|>seven<|END_TEXT|>", "seven"),
    ("<|channel>thought\nfive?\n<channel|>seven", "seven"),
    ("<unused94>thought\nfive?<unused95>seven", "seven"),
    ("<|begin_of_thought|>five?<|end_of_thought|><|begin_of_solution|>seven<|end_of_solution|>", "seven"),
    ("<|inner_prefix|>five?<|inner_suffix|>seven", "seven"),
    ("Here is my thought process: five? Here is my response: seven", " seven"),
    ("five?</think>seven", "seven"),
    ("five?[/THINK]seven", "seven"),
    ("<|channel|>analysis<|message|>five?<|end|><|start|>assistant<|channel|>final<|message|>seven<|return|>", "seven"),
    ("<|channel|>analysis<|message|>five?<|end|><|start|>assistant<|channel|>final<|message|>seven<|end|>", "seven"),
    ("five?<|end|><|start|>assistant<|channel|>final<|message|>seven", "seven"),
    ("<|channel|>analysis<|message|>five?<|end|><|channel|>final <|constrain|>json<|message|>seven<|return|>", "seven"),
    ("analysisfive? Let me think.assistantfinalseven", "analysisfive? Let me think.assistantfinalseven"),
    ("analysisFive? Let me think.assistantfinalseven", "seven"),
]


@pytest.mark.parametrize(("text", "answer"), MARKED)
def test_thinking_is_what_the_family_marks(text: str, answer: str) -> None:
    found, rest = split_thinking(text)
    assert (rest or "").lstrip("\n") == answer
    assert thought_text(found) in ("five?", "Five? Let me think.", "")


@pytest.mark.parametrize(
    "text",
    [
        "[THINK]the answer is 5. Let",
        "◁think▷5",
        "<|START_THINKING|>5",
        "<|channel>thought\n5",
        "<|channel|>analysis<|message|>5",
        "<|channel|>analysis<|message|>5<|end|><|start|>assistant",
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x": 5}<|call|>',
        "<|channel|>final<|message|>4<|end|><|start|>assistant<|channel|>analysis<|message|>5",
        "Here's my thought process: 5",
        "<think>5[/THINK]5",
        "analysisWe say 5",
        "7 <think>5",
    ],
)
def test_thinking_without_an_end_holds_no_answer(text: str) -> None:
    assert split_thinking(text)[1] is None
    assert normal_thinking({"role": "assistant", "content": text}, "drop")["content"] == ""


@pytest.mark.parametrize(
    "text",
    [
        "seven",
        "[think] it over",
        "x < 5 and [1]",
        "Here is my response: 7",
        "analysis of five",
        "[THINKING]",
        "a<|end|>",
    ],
)
def test_text_without_marks_is_all_answer(text: str) -> None:
    assert split_thinking(text) == ("", text)
    message = {"role": "assistant", "content": text}
    assert normal_thinking(message, "drop") is message


@pytest.mark.parametrize(("text", "answer"), [row for row in MARKED if "alysisf" not in row[0]])
def test_training_rows_take_any_family_into_one_form(text: str, answer: str) -> None:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    field = normal_thinking(message, "field")
    assert (field["content"], field["reasoning"].lower()[:5]) == (answer.strip(), "five?")
    assert normal_thinking(field, "tags")["content"] == f"<think>\n{field['reasoning']}\n</think>\n\n{answer.strip()}"
    assert normal([message], "drop")[0]["content"] == answer.strip()


@pytest.mark.parametrize("family", ["[THINK]{}[/THINK]", "◁think▷{}◁/think▷", "<seed:think>{}</seed:think>",
                                    "<|channel|>analysis<|message|>{}<|end|>"])  # fmt: skip
def test_calls_inside_any_family_of_thinking_are_none(family: str) -> None:
    call = '<tool_call>{"name": "NAME", "arguments": {}}</tool_call>'
    parsed = parse_tool_calls(family.format(call.replace("NAME", "thought")) + call.replace("NAME", "real"), "hermes")
    assert [found.name for found in parsed.calls] == ["real"]


def test_the_viewer_shows_marked_thinking_apart() -> None:
    found = list(parts.parts_of({"role": "assistant", "content": "[THINK]five?[/THINK]seven"}))
    assert [part["text"] for part in found] == ["five?", "seven"]
    found = list(parts.parts_of({"role": "user", "content": "[THINK]a[/THINK]b"}))
    assert [part["text"] for part in found] == ["[THINK]a[/THINK]b"]


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("<|thinking_start|>five<|thinking_end|>seven", "<|thinking_start|>"),
        ("<scratchpad>five</scratchpad>seven", "<scratchpad>"),
        ("So [REASONING]five[/REASONING] seven", "[REASONING]"),
        ("<think>five</think>seven", None),
        ("I use <cot> here", None),
        ("[thinking](http://x) and more", None),
    ],
)
def test_an_unknown_mark_is_told_once(text: str, mark: str | None, caplog: pytest.LogCaptureFixture) -> None:
    thinking._told.clear()
    assert unknown_mark(text) == mark
    with caplog.at_level(logging.WARNING, "atropos.thinking"):
        for _ in range(3):
            split_thinking(text)
    assert len(caplog.records) == (mark is not None)
    assert all(str(mark) in record.getMessage() for record in caplog.records)


def test_every_family_is_told_from_text_by_its_marks() -> None:
    assert {family.name for family in FAMILIES if family.alone} >= {"tags", "mistral", "kimi", "cohere", "gemma"}
    assert is_mark("</think>")
    assert is_mark("[THINK]")
    assert not is_mark("<tool_call>")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<|start|>assistant", "<|start|>assistant"),
        ("<|start|>assistant seven", "<|start|>assistant seven"),
        ("<|start|>assistant<|message|>seven", "seven"),
    ],
)
def test_the_beginning_of_a_turn_is_no_thinking(text: str, answer: str) -> None:
    assert split_thinking(text)[1] == answer
