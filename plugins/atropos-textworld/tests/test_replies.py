"""The one command in a reply, by the stated rule."""

from __future__ import annotations

import json
from typing import Any

import case_tables
import pytest
from atropos_textworld.replies import Malformed, find_command

from atropos_cli.sdk import FunctionCall, Message, ToolCall, assistant


def call(command: object, name: str = "execute_command") -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': {'command': command}})}</tool_call>"


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("open chest", "open chest"),
        ("I will open it.\n\n> open chest", "open chest"),
        ("> look\n> open chest\nThat should do.", "open chest"),
        ("Thought: hm\nAction: open chest", "open chest"),
        ("**Action:** open chest", "open chest"),
        ("Action: open chest\nObservation: You open it.\nAction: take key", "open chest"),
        ("The chest looks interesting.\nopen chest", "open chest"),
        ("```\nopen chest\n```", "open chest"),
        ("<think>\n> take key\n</think>\nopen chest", "open chest"),
        ("first thoughts</think> open chest", "open chest"),
        ("<memory>\n> take key\n</memory>\n> open chest", "open chest"),
        (f"Sure.\n{call('open chest')}\nDone.", "open chest"),
        (f"{call('open chest')}{call('take key')}", "open chest"),
        (
            "<tool_call>{'name': 'execute_command', 'arguments': {'command': \"take chef's knife\"}}</tool_call>",
            "take chef's knife",
        ),
        ('<tool_call>{"name": "execute_command", "arguments": "{\\"command\\": \\"look\\"}"}', "look"),
        ("<think>" + call("take key") + "</think>> look", "look"),
    ],
)
def test_the_command(text: str, command: str) -> None:
    assert find_command(assistant(text)) == command


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "empty"),
        (" \n ", "empty"),
        ("<think>done</think>\n", "empty"),
        ("```\n```", "empty"),
        ("Observation: you win", "empty"),
        ("<think>> look", "unclosed_think"),
        ("<think>a</think><think>> look", "unclosed_think"),
        ("<tool_call>{'name'", "bad_tool_call"),
        ("<tool_call>look</tool_call>", "bad_tool_call"),
        ('<tool_call>{"name": "execute_command", "arguments": {"command": "open fri', "bad_tool_call"),
        ("<tool_call>" + "[" * 100_000, "bad_tool_call"),
        ("<tool_call>{" + '"a":{' * 100_000, "bad_tool_call"),
        ('<tool_call>{"name": "execute_command", "arguments": "look"}</tool_call>', "bad_tool_call"),
        (call("look", name="teleport"), "wrong_tool"),
        (call(7), "no_command"),
        ('<tool_call>{"name": "execute_command"}</tool_call>', "no_command"),
        ('<tool_call>{"name": "execute_command", "arguments": []}</tool_call>', "bad_tool_call"),
        ("well, " * 40, "too_long"),
    ],
)
def test_no_command(text: str, fault: Any) -> None:
    assert find_command(assistant(text)) == Malformed(fault)


def native(name: str, arguments: str) -> Message:
    function = FunctionCall(name=name, arguments=arguments)
    return Message(role="assistant", tool_calls=(ToolCall(id="c1", function=function),))


def test_tool_calls_of_the_server() -> None:
    assert find_command(native("execute_command", '{"command": "look"}')) == "look"
    assert find_command(native("execute_command", "look")) == Malformed("bad_tool_call")
    assert find_command(native("other", '{"command": "look"}')) == Malformed("wrong_tool")


def test_cases_of_tool_calls() -> None:
    """Where the table has a call of our tool, we take its first one; where it has an error, we find no command."""
    checked = 0
    for case in case_tables.table("toolcalls"):
        if case["format"] != "hermes" or "<tool_call>" not in case["output"]:
            continue
        found = find_command(assistant(case["output"]))
        calls = case["expected"]["calls"]
        if calls and calls[0]["name"] == "execute_command":
            assert found == calls[0]["arguments"].get("command", Malformed("no_command")), case["id"]
        elif calls or case["expected"]["status"] == "error":
            assert isinstance(found, Malformed), case["id"]
        checked += 1
    assert checked > 20
