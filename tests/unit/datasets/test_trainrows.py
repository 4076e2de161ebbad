"""Rows in a trainer's own shape: what stands beside a conversation is put into it, plain rows stay as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atropos_cli.datasets.convert.turns import BadMessage
from atropos_cli.datasets.trainrows import has_shape, own_row, with_whole_prompt
from atropos_cli.io.formats import RowError


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


SYSTEM = {"role": "system", "content": "S"}
SHAREGPT = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
CALL = {"type": "function", "function": {"name": "f", "arguments": {"city": "Oslo", "day": None}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"system": "S", "messages": [user("q"), reply("a")]}, {"messages": [SYSTEM, user("q"), reply("a")]}),
        ({"system": "S", "conversations": SHAREGPT}, {"messages": [SYSTEM, user("q"), reply("a")]}),
        ({"conversations": json.dumps(SHAREGPT)}, {"messages": [user("q"), reply("a")]}),
        ({"messages": [user("q")], "response": "a"}, {"messages": [user("q"), reply("a")]}),
        ({"conversations": SHAREGPT[:1], "chosen": "a", "rejected": "b"}, {"messages": [user("q"), reply("a")]}),
        (
            {"system": "S", "prompt": "q", "completion": "a"},
            {"prompt": [SYSTEM, user("q")], "completion": [reply("a")]},
        ),
        (
            {"prompt": "Übersetze.", "input": "dog", "completion": "Hund"},
            {"prompt": [user("Übersetze.\n\ndog")], "completion": [reply("Hund")]},
        ),
        (
            {"history": [["a", "b"]], "prompt": [user("q")], "completion": [reply("c")]},
            {"prompt": [user("a"), reply("b"), user("q")], "completion": [reply("c")]},
        ),
    ],
)
def test_sft_rows_are_made_whole(row: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert has_shape(row, "demonstrations")
    assert own_row(row, "demonstrations") == wanted


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"question": "q", "chosen": "a", "rejected": "b"}, [user("q")]),
        (
            {"system": "S", "instruction": "do", "input": "it", "chosen": "a", "rejected": "b"},
            [SYSTEM, user("do\n\nit")],
        ),
        ({"chosen": "\n\nHuman: q\n\nAssistant: a", "rejected": "\n\nHuman: q\n\nAssistant: b"}, [user("q")]),
        ({"chosen": [user("q"), reply("a")], "rejected": [user("q"), reply("b")]}, [user("q")]),
        ({"conversations": SHAREGPT[:1], "chosen": {"from": "gpt", "value": "a"}, "rejected": "b"}, [user("q")]),
        ({"prompt": "q", "chosen": [reply("a")], "rejected": [reply("b")]}, [user("q")]),
    ],
)
def test_dpo_rows_are_made_whole(row: dict[str, Any], prompt: list[dict[str, Any]]) -> None:
    assert has_shape(row, "pairs")
    assert own_row(row, "pairs") == {"prompt": prompt, "chosen": [reply("a")], "rejected": [reply("b")]}


@pytest.mark.parametrize(
    ("row", "learns"),
    [
        ({"messages": [user("q"), reply("a")], "id": 3}, "demonstrations"),
        ({"prompt": "q", "completion": "a"}, "demonstrations"),
        ({"prompt": "Is 91 prime? Say it.", "question": "Is 91 prime?", "completion": "no"}, "demonstrations"),
        ({"text": "User: a\nBot: b"}, "demonstrations"),
        ({"input_ids": [1], "labels": [1]}, "demonstrations"),
        ({"prompt": "q", "chosen": "a", "rejected": "b", "margin": 1}, "pairs"),
        ({"prompt": [user("q")], "chosen": [reply("a")], "rejected": [reply("b")]}, "pairs"),
    ],
)
def test_whole_rows_stay_as_they_are(row: dict[str, Any], learns: Any) -> None:
    assert own_row(row, learns) is row


def test_tools_and_their_nulls() -> None:
    messages = [user("q"), {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    made = own_row({"messages": messages, "tool_defs": json.dumps([TOOL])}, "demonstrations")
    assert made["tools"] == [TOOL]
    found: Any = made["messages"]
    assert found[1]["tool_calls"][0]["function"]["arguments"] == {"city": "Oslo"}


@pytest.mark.parametrize(
    ("row", "learns", "error"),
    [
        ({"chosen": "a", "rejected": "b"}, "pairs", BadMessage),
        ({"messages": [user("q"), reply("a")], "instruction": "Translate."}, "demonstrations", RowError),
        ({"prompt": "one", "problem": "two", "completion": "a"}, "demonstrations", RowError),
    ],
)
def test_rows_that_would_lose_something_are_refused(row: dict[str, Any], learns: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        own_row(row, learns)


def test_prompts_to_complete_are_made_whole() -> None:
    assert with_whole_prompt({"prompt": "q", "system": "S", "answer": 1})["prompt"] == [SYSTEM, user("q")]
    assert with_whole_prompt({"prompt": json.dumps([user("q")])})["prompt"] == [user("q")]
    row = {"prompt": "q", "input": "3", "question": "?"}
    assert with_whole_prompt(row) is row  # columns for the rewards


def test_generations_and_rollouts_are_no_rows_of_the_trainer() -> None:
    row = {"problem": "p", "generations": ["a", "b"], "messages": [user("p"), reply("a")]}
    assert not has_shape(row, "demonstrations")
    assert not has_shape({"messages": [[user("q"), reply("a")]], "scores": [1]}, "demonstrations")
    assert not has_shape({"conversations": SHAREGPT}, "pairs")


@pytest.mark.parametrize(
    "prompt", ["", " \n\t", "\u3000", None, [], [user("")], [user("  ")], [SYSTEM], [SYSTEM, user("")]]
)
def test_a_row_that_asks_nothing_is_refused(prompt: Any) -> None:
    rows: list[tuple[dict[str, Any], Any]] = [
        ({"prompt": prompt, "completion": [reply("a")] if isinstance(prompt, list) else "a"}, "demonstrations"),
        ({"prompt": prompt, "chosen": "a", "rejected": "b"}, "pairs"),
    ]
    if isinstance(prompt, list):
        rows.append(({"messages": [*prompt, reply("a")]}, "demonstrations"))
    for row, learns in rows:
        with pytest.raises((BadMessage, RowError), match="prompt"):
            own_row(row, learns)
