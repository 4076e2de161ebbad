"""Input items of the Responses API as messages, and messages as output items."""

from __future__ import annotations

import pytest
from atropos_nemo_gym.rows import output_of, prompt_of, response_of, tools_of

from atropos_cli.sdk import DataError, FunctionCall, Message, ToolCall


def test_all_kinds_of_input_become_messages() -> None:
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a"}]},
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": "data:x"}, {"type": "input_text", "text": "b"}],
        },
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "7"},
    ]
    made = prompt_of({"instructions": "Be short.", "input": items})
    assert [message.role for message in made] == ["system", "developer", "user", "assistant", "tool"]
    assert made[1].content == "a"
    assert isinstance(made[2].content, tuple)
    assert made[2].content[0] == {"type": "image_url", "image_url": {"url": "data:x"}}
    assert made[4].tool_call_id == "c1"
    assert prompt_of({"input": "Hello"})[0].text == "Hello"


@pytest.mark.parametrize("item", [{"role": "robot", "content": "x"}, {"type": "file_search_call"}, "text", None])
def test_an_item_that_cannot_be_read_is_an_error(item: object) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        prompt_of({"input": [item]})


def test_a_hosted_tool_is_an_error() -> None:
    with pytest.raises(DataError, match="web_search"):
        tools_of({"tools": [{"type": "web_search"}]})


def test_a_conversation_becomes_output_items() -> None:
    calls = (ToolCall(id="c1", function=FunctionCall(name="f", arguments='{"a": 1}')),)
    said = [
        Message(role="assistant", content="", reasoning="hm", tool_calls=calls),
        Message(role="tool", content="7", tool_call_id="c1"),
        Message(role="user", content="again"),
        Message(role="assistant", content=""),
    ]
    items = output_of(said)
    assert [item["type"] for item in items] == [
        "reasoning", "function_call", "function_call_output", "message", "message"
    ]  # fmt: skip
    assert len({item["id"] for item in items if "id" in item}) == 3
    response = response_of({}, items, model="m", now=1.0, cut=True)
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
