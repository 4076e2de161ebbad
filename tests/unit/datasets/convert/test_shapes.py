"""Rows of every output shape: the case table, and schema checks against the documented formats of two trainers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import case_tables
import pytest

from atropos_cli.datasets.convert import selection, shapes
from atropos_cli.datasets.convert.turns import BadMessage, fold_system
from atropos_cli.io.formats import detect


def converted(fn: str, given: dict[str, Any]) -> dict[str, Any]:
    def reply(name: str) -> list[dict[str, Any]]:
        return [{"role": "assistant", "content": given[name]}]

    if fn == "sharegpt_to_messages":
        form = detect(given)
        assert form is not None
        return shapes.messages_row(form.read(given, "f", 1).rollouts[0].messages)
    if fn == "messages_to_sharegpt":
        return shapes.sharegpt_row(given["messages"])
    if fn == "to_trl_preference":
        return shapes.preference_row(given["prompt_messages"], reply("chosen"), reply("rejected"))
    if fn == "to_trl_unpaired":
        label = selection.passes(given["score"], given["threshold"], ">=")
        return shapes.unpaired_row(given["prompt_messages"], reply("completion"), label)
    assert fn == "to_trl_prompt_completion"
    return shapes.prompt_completion_row(given["messages"])


@pytest.mark.parametrize("case", case_tables.params("pairs", lambda row: row["id"].startswith("fmt-")))
def test_case(case: dict[str, Any]) -> None:
    assert converted(case["fn"], case["input"]) == case["expected"]


def llama_factory_problem(row: dict[str, Any]) -> str | None:
    """LLaMA-Factory's documented ShareGPT format: what is wrong with a row.

    Keys from/value; an optional system turn first; human and observation at odd places, gpt and function_call at
    even ones; an even number of turns; tools is JSON text; a function_call's value is JSON of name and arguments.
    """
    turns = row["conversations"]
    if not isinstance(row.get("tools", ""), str):
        return "tools is no text"
    if "tools" in row and not isinstance(json.loads(row["tools"]), list):
        return "tools is no list"
    if turns and turns[0]["from"] == "system":
        turns = turns[1:]
    if not turns or len(turns) % 2:
        return "odd number of turns"
    for place, turn in enumerate(turns, start=1):
        allowed = {"human", "observation"} if place % 2 else {"gpt", "function_call"}
        if turn["from"] not in allowed or not isinstance(turn["value"], str):
            return f"turn {place} is {turn['from']}"
        if turn["from"] == "function_call":
            calls = json.loads(turn["value"])
            for call in calls if isinstance(calls, list) else [calls]:
                if set(call) != {"name", "arguments"} or not isinstance(call["arguments"], dict):
                    return "a function_call without name and arguments"
    return None


def axolotl_problem(row: dict[str, Any]) -> str | None:
    """Axolotl's documented chat_template data set (`field_messages: conversations`, from/value mapped to role/content):
    every role is one of its default mapping, contents are text.
    """
    known = {"human", "user", "gpt", "assistant", "system", "tool"}
    for turn in row["conversations"]:
        if not isinstance(turn.get("from"), str) or not isinstance(turn.get("value"), str):
            return "a turn without from and value"
        if turn["from"] not in known:
            return f"unknown role {turn['from']}"
    return None


def test_the_checks_find_what_is_wrong() -> None:
    def row(*roles: str) -> dict[str, Any]:
        return {"conversations": [{"from": role, "value": "x"} for role in roles]}

    assert llama_factory_problem(row("human", "gpt")) is None
    for wrong in (("gpt", "human"), ("human",), ("system",), ("human", "human", "gpt", "gpt"), ("user", "gpt")):
        assert llama_factory_problem(row(*wrong)) is not None
    assert axolotl_problem(row("human", "function_call")) is not None


FILES = [
    "sharegpt_fastchat/dummy_conversation.json",
    "sharegpt_toolcalls/glaive_toolcall_en_demo.json",
    "atropos_rollouts/rubiks_process_results_32.jsonl",
    "math_rollouts/math_cot_100.jsonl",
    *("sharegpt.json", "sharegpt_tools.json", "atropos.jsonl", "math_replies.jsonl"),
]


@pytest.mark.parametrize("name", [name for name in case_tables.data_files() if name in FILES])
def test_sharegpt_of_real_data_fits_both_trainers(name: str, cli: Any) -> None:
    got = cli("sft-gen", str(case_tables.data_files()[name]), "-o", "o.jsonl", "--format", "sharegpt", "--json")
    assert got.code == 0, got.stderr
    rows = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
    assert len(rows) == got.json["rows"] > 2
    assert [problem for row in rows if (problem := llama_factory_problem(row))] == []
    plain = [row for row in rows if "function_call" not in {turn["from"] for turn in row["conversations"]}]
    assert [problem for row in plain if (problem := axolotl_problem(row))] == []
    assert plain or "tool" in name


def test_messages_of_real_data_fit_axolotl(cli: Any) -> None:
    """Axolotl reads tool calls from OpenAI messages; arguments as objects are what chat templates want."""
    files = case_tables.data_files()
    names = {"sharegpt_tools.json", "sharegpt_toolcalls/glaive_toolcall_en_demo.json"} & set(files)
    assert cli("sft-gen", *(str(files[name]) for name in names), "-o", "o.jsonl").code == 0
    for line in Path("o.jsonl").read_text().splitlines():
        row = json.loads(line)
        for message in row["messages"]:
            assert message["role"] in ("system", "user", "assistant", "tool")
            assert isinstance(message["content"], str) or message["tool_calls"]
            for call in message.get("tool_calls", ()):
                assert isinstance(call["function"]["arguments"], dict)


def test_turns_that_sharegpt_cannot_order() -> None:
    def says(text: str) -> dict[str, Any]:
        return {"role": "assistant", "content": text}

    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    asked = {"role": "user", "content": "q"}
    two = [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}]
    row = shapes.sharegpt_row([asked, {**says(""), "tool_calls": [call, call]}, *two, says("done")])
    assert [turn["from"] for turn in row["conversations"]] == ["human", "function_call", "observation", "gpt"]
    assert row["conversations"][2]["value"] == "1\n2"
    assert llama_factory_problem(row) is None
    with pytest.raises(BadMessage, match="turn 2"):
        shapes.sharegpt_row([asked, asked])
    with pytest.raises(BadMessage, match="thinking"):
        shapes.sharegpt_row([asked, {**says("a"), "reasoning": "r"}])


def test_folding_the_system_text() -> None:
    system, asked = {"role": "system", "content": "S"}, {"role": "user", "content": "U"}
    assert fold_system([system, asked]) == [{"role": "user", "content": "S\n\nU"}]
    assert fold_system([asked]) == [asked]
    assert fold_system([system, {"role": "assistant", "content": "A"}])[0] == {"role": "user", "content": "S"}
