"""What answers: several generations in a row, dumped groups, verl's rows, calls of one turn, tools and their nulls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atropos_cli.datasets.rescore.rows import scored_rows
from atropos_cli.io.formats import RowError, detect, read_as
from atropos_cli.io.formats.native import native_group
from atropos_cli.io.records import Record
from atropos_cli.rollout.workers import Verdict


def read(row: dict[str, Any]) -> Record:
    form = detect(row)
    assert form is not None, row
    return read_as(form, row, "r.jsonl", 1)


def replies(row: dict[str, Any]) -> list[tuple[str, float | None]]:
    return [(rollout.text, rollout.score) for rollout in read(row).rollouts]


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"problem": "p", "generations": ["x", "y"], "correctness_llama": [True, False]}, [("x", 1.0), ("y", 0.0)]),
        (
            {
                "problem": "p",
                "generations": ["x", "y"],
                "correctness_llama": [True, True],
                "correctness_math_verify": [None, False],
                "messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "x"}],
            },
            [("x", 1.0), ("y", 0.0)],
        ),
        (
            {
                "instruction": "i",
                "completions": [{"response": "x", "overall_score": 4}, {"response": "y", "rating": 2}],
            },
            [("x", 4.0), ("y", 2.0)],
        ),
        (
            {
                "prompt": [{"role": "user", "content": "p"}],
                "responses": ["x", "y"],
                "reward_model": {"ground_truth": 1},
            },
            [("x", None), ("y", None)],
        ),
        ({"question": "q", "attempts": ["x", "y"], "judge_correct": [False, True]}, [("x", 0.0), ("y", 1.0)]),
        ({"query": "q", "candidates": ["x", "y"], "rewards": [0.5, 1]}, [("x", 0.5), ("y", 1.0)]),
        (
            {
                "messages": [{"role": "user", "content": "p"}],
                "choices": [
                    {"message": {"role": "assistant", "content": "x"}},
                    {"message": {"role": "model", "content": "y"}},
                ],
            },
            [("x", None), ("y", None)],
        ),
        (
            {
                "prompt": "p",
                "outputs": [[{"from": "gpt", "value": "x"}], [{"from": "gpt", "value": "y"}]],
                "score": [1, 0],
            },
            [("x", 1.0), ("y", 0.0)],
        ),
    ],
)
def test_a_row_with_several_generations_gives_several_rollouts(
    row: dict[str, Any], wanted: list[tuple[str, float | None]]
) -> None:
    assert replies(row) == wanted
    record = read(row)
    (half,) = record.to_raw([record.rollouts[1]])
    assert replies({**half, "messages": row.get("messages", [])[:1]}) == wanted[1:]


def test_lists_that_are_no_replies_stay_beside_the_reply() -> None:
    assert replies({"question": "q", "completion": "code", "inputs": ["1"], "outputs": ["2"]}) == [("code", None)]
    assert detect({"question": "q", "solutions": ["gold", "gold too"]}) is None
    ended = read({"prompt": "q", "responses": ["x", "y"], "finish_reasons": ["stop", "length"]})
    assert [rollout.truncated for rollout in ended.rollouts] == [False, True]


def dumped(*scores: float, **more: Any) -> dict[str, Any]:
    rollouts = [
        {
            "conversation": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": f"how many of {len(scores)}?"},
                {"role": "assistant", "content": f"{score:g}"},
            ],
            "score": score,
            "expected_answer": "7",
            "note": i,
            **more,
        }
        for i, score in enumerate(scores)
    ]
    return {"item_id": "leg_counting", "rollouts": rollouts}


def test_dumped_groups_are_read_cut_and_scored() -> None:
    record = read(dumped(1.0, 0.0, -0.5))
    assert (record.format, record.scores, record.answer) == ("dump", [1.0, 0.0, -0.5], "7")
    assert [message["role"] for message in record.prompt] == ["system", "user"]
    assert record.info["expected_answer"] == "7"
    assert "note" not in record.info
    assert record.task_key != read(dumped(1.0, 0.0)).task_key  # item_id may name a family of tasks
    (half,) = record.to_raw(record.rollouts[1:2])
    assert half == {"item_id": "leg_counting", "rollouts": [record.raw["rollouts"][1]]}
    verdicts = [Verdict(reward=0.25, rewards={}, metrics={}, failure=None) for _ in record.rollouts]
    (scored,) = scored_rows(record, verdicts, {}, "none")
    again = read(scored)
    assert again.scores == [0.25] * 3
    assert scored["rollouts"][0]["score_history"][0]["score"] == 1.0
    assert native_group(again)["rollouts"][2]["messages"][-1]["content"] == "-0.5"
    assert read(dumped(1.0, stop_reason="length")).rollouts[0].truncated
    strange = dumped(1.0)
    strange["rollouts"].append({"conversation": 7})
    with pytest.raises(RowError, match=r"rollouts\[1\]\.conversation"):
        read(strange)


@pytest.mark.parametrize(
    ("asked", "prompt"),
    [
        ("system\nYou are Qwen.\nuser\nHow old?\nassistant\n", ["You are Qwen.", "How old?"]),
        ("<|im_start|>user\nHow old?<|im_end|>\n<|im_start|>assistant\n", ["How old?"]),
        ("How old?", ["How old?"]),
    ],
)
def test_verls_dumps_and_generations(asked: str, prompt: list[str]) -> None:
    record = read({"input": asked, "output": "12", "gts": "12", "score": 1.0, "step": 5, "acc": True})
    assert [message["content"] for message in record.prompt] == prompt
    assert (record.answer, record.scores, record.rollouts[0].text) == ("12", [1.0], "12")
    row = {
        "data_source": "math",
        "prompt": [{"role": "user", "content": asked}],
        "reward_model": {"ground_truth": "12"},
    }
    assert detect(row) is None  # a prompt to complete, no rollout
    assert read({**row, "responses": ["12", "13"]}).answer == "12"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    "turns",
    [
        [("function_call", '{"name": "f", "arguments": {}}'), ("function_call", '{"name": "g", "arguments": {}}')],
        [("tool_call", '{"name": "f"}'), ("tool_call", '{"name": "g"}')],
        [("gpt", None, [call("f")]), ("gpt", "", [call("g")])],
        [("function_call", '[{"name": "f"}, {"name": "g"}]')],
    ],
)
def test_calls_of_one_turn_are_one_message(turns: list[tuple[Any, ...]]) -> None:
    calls = [{"from": who, "value": value, **({"tool_calls": rest[0]} if rest else {})} for who, value, *rest in turns]
    results = [{"from": "observation", "value": "1"}, {"from": "tool_response", "value": "2"}]
    row = {"conversations": [{"from": "human", "value": "q"}, *calls, *results, {"from": "gpt", "value": "a"}]}
    messages = read(row).rollouts[0].messages
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [one["function"]["name"] for one in messages[1]["tool_calls"]] == ["f", "g"]
    assert [m["tool_call_id"] for m in messages[2:4]] == [one["id"] for one in messages[1]["tool_calls"]]


def test_calls_with_a_result_between_them_are_two_messages() -> None:
    one, result = {"from": "function_call", "value": '{"name": "f"}'}, {"from": "observation", "value": "1"}
    row = {"conversations": [{"from": "human", "value": "q"}, one, result, one, result, {"from": "gpt", "value": "a"}]}
    assert [message["role"] for message in read(row).rollouts[0].messages][1:5] == ["assistant", "tool"] * 2
    light = [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call("f")], "weight": 0},
             {"role": "assistant", "tool_calls": [call("g")], "weight": 1}]  # fmt: skip
    assert len(read({"messages": light}).rollouts[0].messages) == 3


def arguments(row_call: Any, **row: Any) -> Any:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [row_call]}]
    (found,) = read({"messages": messages, **row}).rollouts[0].messages[1]["tool_calls"]
    return json.loads(found["function"]["arguments"])


NULLABLE = {"name": "f", "parameters": {"type": "object", "properties": {"to": {"type": ["string", "null"]}}}}


def test_nulls_that_a_column_store_added_are_dropped() -> None:
    assert arguments(call("f", city="Oslo", day=None)) == {"city": "Oslo"}
    nested = call("f", where={"lat": 1, "lon": None}, rows=[{"a": None}, None])
    assert arguments(nested) == {"where": {"lat": 1}, "rows": [{}, None]}
    assert arguments(call("g", to=None), tools=[NULLABLE]) == {}
    # What the tool knows as a value, and what the model wrote as text, stays.
    assert arguments(call("f", to=None, x=None), tools=[NULLABLE]) == {"to": None}
    assert arguments({"function": {"name": "f", "arguments": '{"to": null}'}}) == {"to": None}
    text = {"from": "function_call", "value": '{"name": "f", "arguments": {"to": null}}'}
    (message,) = read({"conversations": [text]}).rollouts[0].messages
    assert message["tool_calls"][0]["function"]["arguments"] == '{"to": null}'


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [NULLABLE]),
        ("tool_defs", json.dumps([NULLABLE])),
        ("available_tools", [{"type": "function", "function": NULLABLE}]),
        ("functions", [NULLABLE]),
        ("tools", [json.dumps(NULLABLE)]),
        ("tool_definitions", [{"name": "f", "input_schema": NULLABLE["parameters"], "strict": None}]),
    ],
)
def test_tools_stand_under_their_usual_names(name: str, value: Any) -> None:
    dialogue = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    assert read({"messages": dialogue, name: value}).tools == [{"type": "function", "function": NULLABLE}]
    assert read({"messages": dialogue, "functions": ["f", "g"]}).tools is None
    with pytest.raises(RowError, match="tools"):
        read({"messages": dialogue, "tools": 7})
