"""Calls in every format that the engine reads are shown as calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from atropos_view.page.parts import parts_of

CALL = json.dumps({"name": "f", "arguments": {"a": 1}})
OFFERED = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}}]


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{CALL}</tool_call>",
        'Action: f\nAction Input: {"a": 1}',
        "```python\nf(a=1)\n```",
        f"I call it: {CALL}",
        f'{{"tool_calls": [{CALL}]}}',
    ],
)
def test_each_format_is_shown_as_a_call(text: str) -> None:
    message: Any = {"role": "assistant", "content": text}
    calls = [part for part in parts_of(message, OFFERED) if part["kind"] == "call"]
    assert [(call["name"], call["arguments"]) for call in calls] == [("f", [["a", "1"]])]


@pytest.mark.parametrize("offered", [(), [{"function": {"name": "other"}}], ["odd", 3]])
def test_code_of_an_answer_is_no_call(offered: Any) -> None:
    message: Any = {"role": "assistant", "content": "```python\nf(a=1)\n```"}
    assert [part["kind"] for part in parts_of(message, offered)] == ["text"]
