"""Why a completion ended, in whatever words a server or a file says it: the one place that knows them.

Servers take their words from OpenAI (stop, length), Anthropic (end_turn, max_tokens), Gemini (STOP, SAFETY),
Cohere, Mistral, Bedrock, DeepSeek, LM Studio, xAI, TensorRT-LLM and others, in any case, with `_`, `-` or humps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

StopReason = Literal[
    "done",  # the environment ended the episode
    "step_limit",  # the environment's own limit of steps
    "length",  # the last completion was cut by max_tokens
    "context_length",  # the next prompt would not fit the model's context
    "content_filter",  # the server withheld the completion
    "incomplete",  # the server ended the completion without saying why, or for a reason that is not known
]

TRUNCATED: frozenset[str] = frozenset({"step_limit", "length", "context_length", "content_filter", "incomplete"})

FINISH_KEYS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason", "stop_type")
"""Fields of a row or a message that say it, the surest first."""

_LONGEST = 200  # characters of a reason that is kept
_PREFIX = re.compile(r"^(?:(?:finish_?reason|stop_?reason|done_?reason|reason)[_.:]+)+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_WORDS: dict[str, str] = {
    "stop": "stop stopped eos eos_token eos_found eosfound end_id end_of_sequence end_of_text endoftext end_turn "
    "end_of_turn end_sequence stop_sequence stop_sequences stop_str stop_string stop_string_found stop_words stop_word "
    "stop_token stop_token_ids word complete completed finish finished end natural natural_stop done",
    "tool_calls": "tool_calls tool_call tool_use tool_uses function_call function_calls",
    "length": "length limit max_tokens max_token max_new_tokens max_len max_length max_output_tokens "
    "max_completion_tokens max_predicted_tokens_reached token_limit token_limit_reached output_limit "
    "max_tokens_reached max_length_reached num_predict max_gen_len max_decode_steps "
    "length_limit length_capped truncated truncation error_limit",
    "context_length": "context_length model_length max_context context_limit context_window context_overflow "
    "max_context_length context_length_reached context_length_exceeded context_window_exceeded "
    "model_context_window_exceeded max_context_length_exceeded",
    "content_filter": "content_filter content_filtered content_filtering filter filtered safety image_safety "
    "recitation image_recitation blocklist prohibited_content image_prohibited_content spii language model_armor "
    "refusal refused guardrail guardrails guardrail_intervened sensitive blocked content_blocked moderation flagged "
    "error_toxic toxic jailbreak policy_violation",
    # The server gave up, and the same request may do better.
    "error": "error abort aborted cancel cancelled canceled user_cancel user_cancelled user_stopped failed failure "
    "server_error internal_error internal_server_error engine_error engine_dead network_error timeout timed_out "
    "time_limit insufficient_system_resource overloaded model_unloaded shutdown preempted",
    "incomplete": "incomplete other image_other unknown unspecified not_finished pause_turn malformed_function_call "
    "malformed_response malformed_model_output malformed_tool_use unexpected_tool_call too_many_tool_calls "
    "missing_thought_signature no_image repetition repetition_truncation recursion load unload "
    "finish_reason_unspecified generation_error tool_error",
}
_MEANING = {word: meaning for meaning, words in _WORDS.items() for word in words.split()}
_MEANING |= {"step_limit": "step_limit", "max_steps": "step_limit"}
_SILENT = frozenset({"", "null", "none", "nil", "nan", "undefined"})


def finish_of(value: Any) -> str | None:
    """A finish reason as OpenAI words it where its meaning is known, else in the words it came in; None for no reason.

    "error" stands for all by which a server says that it gave up: the same request may do better. An object is read by
    its `type` or `reason` (SGLang, OpenAI's responses).
    """
    if isinstance(value, Mapping):
        value = next((value[key] for key in ("type", "reason", "name", "value") if value.get(key) is not None), None)
    if value is None or value is False:
        return None
    return _read(str(value)[:_LONGEST])[0]


def finish_in(row: Mapping[str, Any]) -> str | None:
    """The finish reason that a row or a message states under any of FINISH_KEYS; None when it is silent.

    `stop_reason` beside a `finish_reason` is a server's word for the text or token that matched, and no reason.
    """
    for key in FINISH_KEYS:
        value = row.get(key)
        if value is not None and (isinstance(value, str | Mapping) or key == "finish_reason"):
            return finish_of(value)
    return None


def cut_by(value: Any) -> StopReason | None:
    """What cut a completion or a rollout off, by its finish or stop reason; None when it ended by itself or is silent.

    A reason that is not known counts as "incomplete": nobody can say that such a text is whole.
    """
    if type(value) is str:
        return _read(value[:_LONGEST])[1]
    reason = finish_of(value)
    return None if reason is None else _read(reason)[1]


def stop_reason_of(finish_reason: str | None) -> StopReason:
    """How a rollout ended that ends with this completion: a server that is silent about it left it incomplete."""
    return "incomplete" if finish_reason is None else cut_by(finish_reason) or "done"


def is_known(value: str) -> bool:
    """Is this a finish reason that some server is known to give?"""
    return _read(value[:_LONGEST])[2]


@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[str | None, StopReason | None, bool]:
    """(the reason as OpenAI words it, what it cuts off, is it known)."""
    word = re.sub(r"[\s\-]+", "_", _HUMP.sub("_", text.strip())).lower()
    bare = _PREFIX.sub("", word)
    if bare in _SILENT:
        return None, None, True
    meaning = _MEANING.get(word) or _MEANING.get(bare)
    if meaning is None:
        return text, "incomplete", False
    if meaning in ("stop", "tool_calls"):
        return meaning, None, True
    if meaning == "error":
        return "error", "incomplete", True
    return meaning, meaning, True  # type: ignore[return-value]
