"""Row formats: what they are read as, and how they are written back with rollouts left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from case_tables import OWN_DATA, real_data
from records_support import Reading, case_files, row, write_rows

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.rollout import token_sequences
from atropos_cli.io.formats import RowError, detect
from atropos_cli.io.formats.native import native_group
from atropos_cli.io.grouping import group_rows
from atropos_cli.io.jsonvalue import dump
from atropos_cli.io.records import Record
from atropos_cli.io.thinkform import normal_thinking


def read(raw: dict[str, Any]) -> Record:
    form = detect(raw)
    assert form is not None
    return form.read(raw, "r.jsonl", 1)


NATIVE: dict[str, Any] = {
    "schema_version": 1,
    "group_id": "0123456789-4",
    "env": "math",
    "task": {"id": "t4", "prompt": [{"role": "user", "content": "2+2?"}], "answer": "4", "info": {"task_name": "sums"}},
    "rollouts": [
        {
            "id": f"0123456789-4/{i}",
            "task_id": "t4",
            "messages": [
                {"role": "user", "content": "2+2?", "tokens": {"ids": [1, 2], "mask": False}},
                {
                    "role": "assistant",
                    "content": reply,
                    "finish_reason": "stop",
                    "tokens": {"ids": [3, 4 + i], "mask": True, "logprobs": [-0.5, -0.25]},
                },
            ],
            "rewards": {"exact": reward},
            "reward": reward,
            "stop_reason": "done",
        }
        for i, (reply, reward) in enumerate([("4", 1.0), ("5", 0.0)])
    ]
    + [
        {
            "id": "0123456789-4/2",
            "task_id": "t4",
            "messages": [{"role": "user", "content": "2+2?"}],
            "failure": {"stage": "generate", "type": "Boom", "message": "no"},
        }
    ],
    "advantages": [0.7, -0.7, None],
    "model": "m",
    "seed": 3,
}


def test_native_group() -> None:
    record = read(NATIVE)
    assert (record.id, record.task_id, record.env, record.task_name) == ("0123456789-4", "t4", "math", "sums")
    assert (record.answer, record.model, record.seed) == ("4", "m", 3)
    assert record.scores == [1.0, 0.0, None]
    assert record.prompt == [{"role": "user", "content": "2+2?"}]
    first, _, failed = record.rollouts
    assert (first.text, first.prompt_length, first.finish_reason, first.stop_reason) == ("4", 1, "stop", "done")
    assert first.rewards == {"exact": 1.0}
    assert (first.tokens, first.mask, first.logprobs) == (
        [1, 2, 3, 4],
        [False, False, True, True],
        [0.0, 0.0, -0.5, -0.25],
    )
    assert first.completion_tokens == 2
    assert failed.failure == {"stage": "generate", "type": "Boom", "message": "no"}
    assert (failed.text, failed.tokens, failed.completion) == ("", None, [])


def test_native_tokens_agree_with_the_domain() -> None:
    raw = json.loads(json.dumps(NATIVE))
    more = raw["rollouts"][0]["messages"]
    more.append({"role": "user", "content": "again", "tokens": {"ids": [9, 9, 9], "mask": False, "restart": True}})
    more.append({"role": "assistant", "content": "x", "tokens": {"ids": [7, 8], "mask": [True, False]}})
    ours = read(raw).rollouts[0].sequences
    theirs = token_sequences(ScoredGroup.model_validate(raw).rollouts[0])
    assert [(tuple(s.ids), tuple(s.mask), s.logprobs and tuple(s.logprobs)) for s in ours] == [
        (s.ids, s.mask, s.logprobs) for s in theirs
    ]
    assert len(ours) == 2


def test_native_cut_keeps_advantages_beside_their_rollouts() -> None:
    record = read(NATIVE)
    (raw,) = record.to_raw([record.rollouts[1], record.rollouts[2]])
    group = ScoredGroup.model_validate(raw)
    assert [rollout.id for rollout in group.rollouts] == ["0123456789-4/1", "0123456789-4/2"]
    assert group.advantages == (-0.7, None)
    assert len(NATIVE["rollouts"]) == 3
    assert record.to_raw([]) == []


def test_native_turn_group_has_the_history_as_prompt() -> None:
    raw = json.loads(json.dumps(NATIVE))
    raw["turn"] = 1
    for rollout in raw["rollouts"][:2]:
        for message in rollout["messages"]:
            del message["tokens"]
        rollout["messages"] += [{"role": "user", "content": "more"}, {"role": "assistant", "content": "y"}]
    assert read(raw).rollouts[0].prompt_length == 3
    raw["turn"] = None
    assert read(raw).rollouts[0].prompt_length == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schema_version": 99}, "schema_version"),
        ({"task": "t"}, "task"),
        ({"rollouts": "x"}, "rollouts"),
        ({"rollouts": [5], "advantages": None}, "rollouts[0]"),
        ({"advantages": [1.0]}, "advantages"),
    ],
)
def test_native_errors_name_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(RowError) as caught:
        read({**NATIVE, **change})
    assert caught.value.field == field


ATROPOS: dict[str, Any] = {
    **row("q", "one", "two", "three", scores=[1, 0.5, 0]),
    "tokens": [[1, 2, 3, 4], [1, 2, 5], [1, 2, 6]],
    "masks": [[-100, -100, 3, 4], [-100, -100, 5], [-100, -100, 6]],
    "inference_logprobs": [[1.0, 1.0, -0.1, -0.2], [1.0, 1.0, -0.3], [1.0, 1.0, -0.4]],
    "advantages": None,
    "overrides": None,
    "group_overrides": {"group_size": 3},
    "bootcamp_names": ["maze", "maze", "maze"],
    "my_own": ["a", "b", "c"],
    "tags": ["x", "y", "z"],
    "note": {"k": [1, 2, 3]},
}


def test_atropos_group() -> None:
    record = read(ATROPOS)
    assert (record.format, record.task_name, record.scores) == ("atropos", "maze", [1.0, 0.5, 0.0])
    second = record.rollouts[1]
    assert (second.tokens, second.mask, second.logprobs) == ([1, 2, 5], [False, False, True], [0.0, 0.0, -0.3])


def test_atropos_cut_cuts_parallel_lists_alike_and_nothing_else() -> None:
    record = read(ATROPOS)
    (raw,) = record.to_raw([record.rollouts[0], record.rollouts[2]])
    assert raw["scores"] == [1, 0]
    assert raw["tokens"] == [[1, 2, 3, 4], [1, 2, 6]]
    assert [messages[-1]["content"] for messages in raw["messages"]] == ["one", "three"]
    assert len(raw["masks"]) == len(raw["inference_logprobs"]) == len(raw["bootcamp_names"]) == 2
    assert raw["my_own"] == ["a", "c"]
    assert (raw["tags"], raw["note"], raw["overrides"]) == (["x", "y", "z"], {"k": [1, 2, 3]}, None)
    assert record.raw["scores"] == [1, 0.5, 0]


def test_atropos_lists_of_another_length_are_refused() -> None:
    with pytest.raises(RowError, match=r"masks\[1\]: expected 3 entries, as many as tokens\[1\], found 2"):
        read({**ATROPOS, "masks": [[-100, -100, 3, 4], [-100, 5], [-100, -100, 6]]})
    with pytest.raises(RowError, match="tokens: expected 3 entries, as many as messages, found 1"):
        read({**ATROPOS, "tokens": [[1]]})


def test_atropos_without_messages_or_with_zero_one_masks() -> None:
    raw = {"tokens": [[1, 2]], "masks": [[0, 1]], "scores": [1.0]}
    (rollout,) = read(raw).rollouts
    assert (rollout.messages, rollout.mask, rollout.logprobs) == ([], [False, True], None)


def test_a_single_scored_item_is_a_group_of_one() -> None:
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    raw = {"tokens": [1, 2], "masks": [-100, 2], "scores": 0.5, "messages": said, "overrides": None}
    record = read(raw)
    (rollout,) = record.rollouts
    assert (rollout.text, rollout.score, rollout.tokens, rollout.mask) == ("a", 0.5, [1, 2], [False, True])
    assert record.to_raw() == [{**raw, "tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [0.5], "messages": [said]}]


@pytest.mark.parametrize("raw", [ATROPOS, row("x", "a", "b", scores=[None, 1])])
def test_to_native_is_a_valid_group(raw: dict[str, Any]) -> None:
    record = read(raw)
    group = ScoredGroup.model_validate_json(dump(native_group(record)))
    assert [rollout.reward for rollout in group.rollouts] == record.scores
    assert [rollout.text for rollout in group.rollouts] == [rollout.text for rollout in record.rollouts]
    for rollout, stored in zip(group.rollouts, record.rollouts, strict=True):
        assert [list(s.ids) for s in token_sequences(rollout)] == [s.ids for s in stored.sequences]
        assert [list(s.mask) for s in token_sequences(rollout)] == [s.mask for s in stored.sequences]


def test_c16_sharegpt_dialects(tmp_path: Path) -> None:
    (path,) = case_files("C16", tmp_path)
    one, two, three = Reading(path).records
    messages = one.rollouts[0].messages
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert messages[2]["content"] is None
    assert messages[2]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert messages[3]["tool_call_id"] == messages[2]["tool_calls"][0]["id"]
    for record in (two, three):
        assert record.rollouts[0].messages == [
            {"role": "user", "content": "Q"},
            {"role": "assistant", "content": "A"},
        ]


def test_c17_unknown_role_names_the_nearest(tmp_path: Path) -> None:
    (path,) = case_files("C17", tmp_path)
    reading = Reading(path)
    assert len(reading.records) == 1
    assert reading.warnings == [f"{path}:1: conversations[0].role: expected 'human', found the text 'hummany'"]


def test_c10_arguments_are_json_text_either_way(tmp_path: Path) -> None:
    path = next(path for path in case_files("C10", tmp_path) if path.suffix == ".jsonl")
    calls = [record.rollouts[0].messages[1]["tool_calls"][0]["function"] for record in Reading(path).records]
    assert [json.loads(call["arguments"]) for call in calls] == [{"a": 1}, {"a": 1}]


def test_c19_weights_are_kept(tmp_path: Path) -> None:
    (path,) = case_files("C19", tmp_path)
    weights = [[m.get("weight") for m in record.rollouts[0].messages] for record in Reading(path).records]
    assert weights == [[None, 0.0, None, 1.0], [None, 0.5], [None, 0.0]]


def test_c21_tools_as_list_and_as_text(tmp_path: Path) -> None:
    (path,) = case_files("C21", tmp_path)
    reading = Reading(path)
    assert [record.tools for record in reading.records] == [[{"type": "function", "function": {"name": "f"}}]] * 2
    assert reading.warnings[0].startswith(f"{path}:3: tools: expected a list of tools")


def test_d05_preference_conversations(tmp_path: Path) -> None:
    (path,) = case_files("D05", tmp_path)
    one, two, three = Reading(path).records
    assert [rollout.label for rollout in three.rollouts] == ["chosen", "rejected"]
    assert [len(rollout.prompt) for rollout in three.rollouts] == [3, 3]
    assert [rollout.text for rollout in three.rollouts] == ["good", "bad"]
    # One side is the head of the other, or both are the same: the prompt still ends before an assistant message.
    assert [len(rollout.prompt) for rollout in one.rollouts] == [1, 1]
    assert [len(rollout.prompt) for rollout in two.rollouts] == [1, 1]
    assert three.to_raw(three.rollouts[:1]) == []


def test_preference_with_text_and_with_repeated_prompt() -> None:
    record = read({"prompt": "Q", "chosen": "good", "rejected": "bad", "score_chosen": 8.0, "score_rejected": 2.0})
    assert record.scores == [8.0, 2.0]
    assert record.rollouts[1].messages == [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "bad"}]
    user = {"role": "user", "content": "Q"}
    sides = [[user, {"role": "assistant", "content": text}] for text in ("good", "bad")]
    record = read({"prompt": [user], "chosen": sides[0], "rejected": sides[1]})
    assert record.rollouts[0].messages == sides[0]


def test_completion_rows() -> None:
    record = read({"question": "6*7?", "answer": "#### 42", "completion": "42"})
    assert (record.format, record.answer) == ("completion", "#### 42")
    assert record.rollouts[0].messages == [{"role": "user", "content": "6*7?"}, {"role": "assistant", "content": "42"}]
    record = read({"prompt": "Write f(x).", "tests": ["assert f(1)==2"], "completion": "def f(x): return x+1"})
    assert record.info == {"tests": ["assert f(1)==2"]}
    record = read({"env": "boxes", "answer_key": {"moves": []}, "completion": None})
    assert (record.env, record.rollouts[0].text, record.answer) == ("boxes", "", {"moves": []})
    record = read({"prompt": "p", "completion": "c", "label": False})
    assert record.scores == [0.0]


def test_tau_bench_trials_make_groups() -> None:
    groups = list(group_rows(Reading(OWN_DATA / "tau.jsonl").records))
    assert [(group.id, group.scores) for group in groups] == [("0", [1.0, 0.0]), ("1", [1.0, 1.0])]


def test_real_tau_bench_trials_make_groups() -> None:
    path = real_data("tau_bench/gpt-4o-airline_14tasks_x4trials.jsonl")
    groups = list(group_rows(Reading(path).records))
    assert [group.id for group in groups] == [str(task) for task in range(14)]
    assert all(len(group.rollouts) == 4 for group in groups)
    assert groups[1].scores == [0.0, 1.0, 0.0, 0.0]
    kept = groups[1].to_raw([groups[1].rollouts[1]])
    assert [(raw["task_id"], raw["trial"]) for raw in kept] == [(1, 1)]


def test_grouping_joins_rows_far_apart_by_prompt(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{i % 3}", "completion": f"c{i}", "score": i} for i in range(9)]
    path = write_rows(tmp_path / "r.jsonl", *rows[:5], row("whole", "x", "y"), *rows[5:])
    groups = list(group_rows(Reading(path).records, folder=tmp_path))
    assert groups[0].id == "whole"
    assert [group.scores for group in groups[1:]] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert [json.loads(line) for line in groups[2].to_lines()] == [rows[1], rows[4], rows[7]]


def test_b15_three_dresses_of_thinking(tmp_path: Path) -> None:
    (path,) = case_files("B15", tmp_path)
    replies = [record.rollouts[0].messages[-1] for record in Reading(path).records]
    assert [normal_thinking(reply, "field") for reply in replies] == [
        {"role": "assistant", "content": "Four", "reasoning": "plan"}
    ] * 3
    tags = {"role": "assistant", "content": "<think>\nplan\n</think>\n\nFour"}
    assert [normal_thinking(reply, "tags") for reply in replies] == [tags] * 3
    assert [normal_thinking(reply, "drop")["content"] for reply in replies] == ["Four"] * 3
    assert [normal_thinking(reply, "keep") for reply in replies] == replies


def test_thinking_that_never_ended_has_no_answer() -> None:
    message = {"role": "assistant", "content": "<think>6*7 is 42"}
    assert normal_thinking(message, "field") == {"role": "assistant", "content": "", "reasoning": "6*7 is 42"}
    cut = {"role": "assistant", "content": None, "reasoning": "so I would say 4"}
    assert normal_thinking(cut, "field") == cut
    plain = {"role": "assistant", "content": "a"}
    assert normal_thinking(plain, "field") is plain
