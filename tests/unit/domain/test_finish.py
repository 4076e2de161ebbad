# ruff: noqa: E501 - tables of wordings, a line each
"""Finish reasons: one mapping for servers and files; what is not known is incomplete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.finish import cut_by, finish_in, finish_of, is_known, stop_reason_of
from atropos_cli.io.formats import detect
from atropos_cli.io.readers import read_records
from atropos_cli.io.sources import find_sources


@pytest.mark.parametrize(
    ("meaning", "words"),
    [
        (
            "stop",
            "stop STOP Stop FinishReason.STOP FINISH_REASON_STOP end_turn END_TURN COMPLETE stop_sequence eos_token",
        ),
        (
            "stop",
            "eosFound stopStringFound END_ID STOP_WORDS REASON_STOP completed endoftext stop-sequence word FINISH",
        ),
        ("tool_calls", "tool_calls toolUse tool-calls TOOL_CALL function_call tool_use"),
        ("length", "length LENGTH max_tokens MAX_TOKENS FinishReason.MAX_TOKENS max-tokens maxPredictedTokensReached"),
        (
            "length",
            "REASON_MAX_LEN max_output_tokens max_new_tokens limit MaxTokens token_limit num_predict max_gen_len",
        ),
        (
            "context_length",
            "model_length model_context_window_exceeded contextLengthReached context_length REASON_MAX_CONTEXT",
        ),
        ("content_filter", "content_filter content-filter contentFilter SAFETY RECITATION PROHIBITED_CONTENT refusal"),
        ("content_filter", "guardrail_intervened sensitive ERROR_TOXIC BLOCKLIST content_filtered SPII"),
        ("error", "error abort ABORT cancelled insufficient_system_resource TIMED_OUT modelUnloaded network_error"),
        ("incomplete", "OTHER pause_turn MALFORMED_FUNCTION_CALL not_finished incomplete"),
    ],
)
def test_finish_reasons_of_all_servers_in_any_case(meaning: str, words: str) -> None:
    for word in words.split():
        assert finish_of(word) == meaning, word
        assert is_known(word), word
        ends = None if meaning in ("stop", "tool_calls") else "incomplete" if meaning == "error" else meaning
        assert cut_by(word) == ends, word


def test_finish_reasons_that_are_unknown_are_incomplete_and_silent_ones_are_no_reason() -> None:
    for word in ("gremlins", "结束", "paused-by-moon", "stop?", "lengthy"):
        assert (finish_of(word), cut_by(word), is_known(word)) == (word, "incomplete", False)
    for silent in (None, "", "null", "None", " ", False):
        assert (finish_of(silent), cut_by(silent)) == (None, None)
    assert stop_reason_of(None) == "incomplete"
    assert [stop_reason_of(word) for word in ("stop", "tool_use", "MAX_TOKENS", "odd")] == [
        "done",
        "done",
        "length",
        "incomplete",
    ]
    assert finish_of({"type": "length", "length": 16}) == finish_of({"reason": "max_output_tokens"}) == "length"
    # vLLM's stop_reason beside a finish_reason is the text that matched.
    assert finish_in({"finish_reason": "stop", "stop_reason": "</answer>"}) == "stop"
    assert finish_in({"finish_reason": None, "stop_reason": 151645}) is None


USER = {"role": "user", "content": "q"}
ROWS: list[tuple[dict[str, Any], list[str | None]]] = [
    ({"messages": [USER, {"role": "assistant", "content": "a", "stop_reason": "max_tokens"}]}, ["length"]),
    ({"messages": [USER, {"role": "assistant", "content": "a"}], "finishReason": "SAFETY"}, ["content_filter"]),
    ({"messages": [USER, {"role": "assistant", "content": "a"}], "done_reason": "stop"}, [None]),
    ({"messages": [USER, {"role": "assistant", "content": "a"}], "finish_reason": {"type": "length"}}, ["length"]),
    ({"messages": [USER, {"role": "assistant", "content": "a"}], "truncated": True}, ["marked"]),
    ({"prompt": "q", "completion": "a", "finish_reason": "ERROR"}, ["incomplete"]),
    ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "finish_reason": "zzz"}, ["incomplete"]),
    (
        {
            "messages": [[USER, {"role": "assistant", "content": "a"}]] * 3,
            "scores": [1, 1, 1],
            "finish_reasons": ["END_TURN", "MODEL_LENGTH", "??"],
        },
        [None, "context_length", "incomplete"],
    ),
    ({"question": "q", "response": ["a", "b"], "score": [1, 1], "finish_reasons": ["stop", "Max_Tokens"]}, [None, "length"]),
    (
        {
            "group_id": "g",
            "task": {"id": "t", "prompt": [USER]},
            "rollouts": [
                {"messages": [USER, {"role": "assistant", "content": "a", "finish_reason": "MAX_TOKENS"}], "stop_reason": "done"},
                {"messages": [USER, {"role": "assistant", "content": "a"}], "stop_reason": "Prohibited_Content"},
                {"messages": [USER, {"role": "assistant", "content": "a", "finish_reason": "stop"}], "stop_reason": "done"},
            ],
        },
        ["length", "content_filter", None],
    ),
]  # fmt: skip


def test_finish_reasons_in_files_of_every_format(tmp_path: Path) -> None:
    seen = set()
    for row, wanted in ROWS:
        path = tmp_path / "r.jsonl"
        path.write_text(json.dumps(row), encoding="utf-8")
        (record,) = read_records(find_sources([str(path)]))
        assert [rollout.cut for rollout in record.rollouts] == wanted, row
        form = detect(row)
        assert form is not None
        seen.add(form.name)
    assert seen == {"messages", "completion", "sharegpt", "atropos", "solutions", "native"}
