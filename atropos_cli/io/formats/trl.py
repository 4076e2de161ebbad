"""TRL's rows: preference (prompt?, chosen, rejected), unpaired (prompt, completion, label), prompt-completion, text.

Prompts and completions are text or messages, JSON text of messages, or transcripts. The prompt stands under any of the
names that `prompts` knows. LLaMA-Factory's chosen_messages / rejected_messages are read as preference rows; Alpaca's
rows (instruction, input, output) and those that verl dumps (input, output, score) as completions.
"""

from __future__ import annotations

from atropos_cli.io.formats.common import (
    Format,
    first_reply,
    new_record,
    read_finish,
    read_score,
    side_fields,
    whole_rows,
)
from atropos_cli.io.formats.prompts import (
    KEYS,
    REPLIES,
    dialogue,
    in_context,
    labelled,
    prompt_of,
    replies,
    reply_key,
    text_dialogue,
)
from atropos_cli.io.formats.toolcalls import TOOL_KEYS, link_tool_results
from atropos_cli.io.records import Message, Record, Row, StoredRollout

_PAIRS = (("chosen", "rejected"), ("chosen_messages", "rejected_messages"))
_PAIR_FIELDS = frozenset({"prompt", *TOOL_KEYS, *(key for pair in _PAIRS for key in pair)})
_FIELDS = frozenset({"prompt", *REPLIES, "label", "text", *TOOL_KEYS, "score", "reward", "finish_reason"})


def matches_preference(raw: Row) -> bool:
    return any(chosen in raw and rejected in raw for chosen, rejected in _PAIRS)


def read_preference(raw: Row, source: str, line: int) -> Record:
    """Two rollouts, labelled chosen and rejected; scores when the row has score_chosen and score_rejected.

    Where no field holds a prompt, it is the messages that both sides share, and ends before an assistant message.
    """
    record = new_record(raw, "preference", source, line)
    keys = next(pair for pair in _PAIRS if pair[0] in raw)
    prompt = _pair_prompt(raw, record)
    sides = [replies(raw[key], key, prompt, record.tools) for key in keys]
    if not any(message["role"] == "user" for message in prompt):
        # Nothing asks yet: the sides are whole conversations, and what stands beside them belongs to both.
        sides = [in_context(side, raw, tools=record.tools) for side in sides]
        length = shared_prompt(*sides)
    elif _whole(sides, prompt):
        sides = [in_context(side, raw, tools=record.tools) for side in sides]
        length = shared_prompt(*sides)
    else:
        prompt, sides = labelled(prompt, raw, sides)
        sides = [prompt + side for side in sides]
        length = len(prompt)
    for side in sides:
        link_tool_results(side)
    record.info = side_fields(raw, _PAIR_FIELDS)
    for i, (side, label) in enumerate(zip(sides, ("chosen", "rejected"), strict=True)):
        score, odd = read_score(raw.get(f"score_{label}"), f"score_{label}")
        if odd:
            record.non_finite.append(i)
        record.rollouts.append(
            StoredRollout(messages=side, score=score, raw=raw, index=i, prompt_length=length, label=label)
        )
    # Half a pair is not a row.
    record.cut = lambda record, kept: [record.raw] if len(kept) == 2 else []
    return record


def _pair_prompt(raw: Row, record: Record) -> list[Message]:
    """What both sides answer. Messages beside them ask, unless they are one of the sides as a whole."""
    prompt = prompt_of(raw, tools=record.tools) if raw.get("prompt") is not None or "messages" not in raw else []
    if not raw.get("messages"):
        return prompt or prompt_of(raw, tools=record.tools)
    messages = dialogue(raw["messages"], "messages", record.tools)
    if messages and messages[-1]["role"] == "assistant":
        if prompt or any(isinstance(raw.get(key), list) for pair in _PAIRS for key in pair):
            return prompt or prompt_of(raw, tools=record.tools)
        messages = messages[:-1]
    return in_context(messages, raw, tools=record.tools)


def _whole(sides: list[list[Message]], prompt: list[Message]) -> bool:
    """Do both sides begin with what asks? Some sets repeat the prompt at the head of both."""
    return all(any(message["role"] == "user" for message in side[:-1]) for side in sides) and all(
        side[len(lead) : len(lead) + len(own)] == own and len(side) > len(lead) + len(own)
        for side in sides
        for lead in [[message for message in side[:1] if message["role"] == "system"]]
        for own in [[message for message in prompt if message["role"] != "system"]]
    )


def shared_prompt(a: list[Message], b: list[Message]) -> int:
    """How many leading messages two conversations share, cut back until both continue with an assistant message."""
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    while length > 0 and not all(len(side) > length and side[length]["role"] == "assistant" for side in (a, b)):
        length -= 1
    return length


def matches_completion(raw: Row) -> bool:
    if "completion" in raw:
        return not isinstance(raw.get("completions"), list)
    return reply_key(raw) is not None and not KEYS.isdisjoint(raw)


def read_completion(raw: Row, source: str, line: int) -> Record:
    """One rollout. A boolean label is its score (1.0 or 0.0) when the row has none."""
    record = new_record(raw, "completion", source, line)
    key = reply_key(raw) or "completion"
    prompt = prompt_of(raw, tools=record.tools)
    completion = raw[key]
    if completion is None:
        reply: list[Message] = [{"role": "assistant", "content": None}]
    else:
        reply = replies(completion, key, prompt, record.tools)
    if len(reply) > 1 and _whole([reply], prompt):
        messages = in_context(reply, raw, tools=record.tools)
        asked = sum(message["role"] != "system" for message in prompt)
        spoken = [i for i, message in enumerate(messages) if message["role"] != "system"]
        length = spoken[asked] if asked else first_reply(messages)
    else:
        prompt, (reply,) = labelled(prompt, raw, [reply])
        messages, length = prompt + reply, len(prompt)
    link_tool_results(messages)
    label = raw.get("label")
    stored = raw.get("score", raw.get("reward"))
    if stored is None and isinstance(label, bool):
        stored = float(label)
    score, odd = read_score(stored, "score")
    record.info = side_fields(raw, _FIELDS)
    record.non_finite = [0] if odd else []
    record.rollouts.append(
        StoredRollout(
            messages=messages,
            score=score,
            raw=raw,
            prompt_length=length,
            finish_reason=read_finish(raw, reply),
        )
    )
    record.cut = whole_rows
    return record


def matches_text(raw: Row) -> bool:
    return isinstance(raw.get("text"), str)


def read_text(raw: Row, source: str, line: int) -> Record:
    """One rollout whose only message is the whole text (as an assistant message: all of it is trained on).

    A transcript is the conversation that it is.
    """
    score, odd = read_score(raw.get("score", raw.get("reward")), "score")
    record = new_record(raw, "text", source, line)
    record.info = side_fields(raw, _FIELDS)
    record.non_finite = [0] if odd else []
    messages: list[Message] = text_dialogue(raw["text"], "text") or [{"role": "assistant", "content": raw["text"]}]
    messages = in_context(messages, raw) if len(messages) > 1 else messages
    length = first_reply(messages)
    record.rollouts.append(
        StoredRollout(messages=messages, score=score, raw=raw, prompt_length=length, finish_reason=read_finish(raw, []))
    )
    record.cut = whole_rows
    return record


PREFERENCE = Format(
    "preference", False, matches_preference, read_preference, "TRL preference rows: {prompt?, chosen, rejected}"
)
COMPLETION = Format(
    "completion",
    False,
    matches_completion,
    read_completion,
    "rows with one completion: {prompt or question, completion, label?, answer?}",
)
TEXT = Format("text", False, matches_text, read_text, "TRL text rows: {text}")
