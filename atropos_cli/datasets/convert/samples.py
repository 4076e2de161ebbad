"""From a stored rollout to a conversation that can be trained on, or the reason why it cannot.

Reasons (also the words of the reports): failed, score_not_finite, truncated:<why>, empty, no_prompt, weight_zero,
not_text, tool_arguments, and those that later steps add.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from atropos_cli.datasets.convert.spec import SftOptions
from atropos_cli.datasets.convert.turns import BadMessage, fold_system, objects_of, plain_text
from atropos_cli.domain.finish import cut_by, finish_of
from atropos_cli.domain.task import TASK_NAME
from atropos_cli.io.formats.atropos import parallel_keys
from atropos_cli.io.jsonvalue import dump
from atropos_cli.io.records import Message, Record, Row, StoredRollout, text_of
from atropos_cli.io.thinkform import ThinkingForm, normal_messages, thinking_of
from atropos_cli.text.thinking import log_unknown_marks, may_think

_UNASKED = frozenset(("assistant", "system", "developer"))


@dataclass(slots=True)
class Sample:
    """A conversation to train on. It ends with an assistant message.

    trained: positions of the assistant messages that are learned. lineage: columns that say where it comes from.
    where: file:line, for messages to people. dropped_thinking: the options took thinking away.
    """

    messages: list[Message]
    trained: list[int]
    task: str
    where: str
    tools: list[Row] | None = None
    lineage: Row = field(default_factory=dict)
    dropped_thinking: bool = False


def why_not(
    record: Record, rollout: StoredRollout, *, keep_truncated: bool = False, by_tokens: bool = False
) -> str | None:
    """Why a rollout is of no use whatever its score is; None when it can be used. by_tokens: its stored ones are."""
    if rollout.failure is not None:
        return "failed"
    if record.non_finite and rollout.index in record.non_finite:
        return "score_not_finite"
    if not keep_truncated and (cut := rollout.cut) is not None:
        return f"truncated:{cut}"
    messages = rollout.messages
    if not messages and rollout.sequences:
        return None if by_tokens else "no_messages"
    if len(messages) > rollout.prompt_length and messages[-1]["role"] == "assistant" and _has_text(messages[-1]):
        return None
    return None if useful_end(messages) > rollout.prompt_length else "empty"


def completion_key(rollout: StoredRollout) -> str:
    """What the model wrote, as one text: two rollouts with the same text are the same answer."""
    completion = rollout.completion
    if not rollout.messages:
        return str(rollout.tokens)
    if len(completion) == 1 and not completion[0].get("tool_calls"):
        return text_of(completion[0]).strip()
    parts = []
    for message in completion:
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        parts.append(f"{message['role']}\x01{text_of(message).strip()}\x01{dump(calls).decode() if calls else ''}")
    return "\x00".join(parts)


def prepare(record: Record, rollout: StoredRollout, options: SftOptions) -> Sample:
    """The sample of a rollout that `why_not` let through. Raises BadMessage."""
    begin = rollout.prompt_length
    expect_question(record, rollout.messages)
    stored = told_cut(rollout)
    messages = normal(stored, options.thinking_form)
    dropped = options.thinking_form == "drop" and any(a is not b for a, b in zip(stored, messages, strict=True))
    if options.system == "fold" and any(message["role"] in ("system", "developer") for message in messages):
        folded = fold_system(messages)
        begin = max(begin + len(folded) - len(messages), 0)
        messages = folded
    trained = [i for i in range(begin, len(messages)) if messages[i]["role"] == "assistant" and _has_text(messages[i])]
    if options.train_on == "last":
        trained = trained[-1:]
    weighted = [i for i in trained if messages[i].get("weight", 1) != 0]
    if not weighted:
        raise BadMessage("weight_zero" if trained else "empty", "no message of the assistant is trained on")
    lineage = lineage_of(record, rollout, options.fields)
    return Sample(messages, weighted, lineage["task"], record.where, record.tools, lineage, dropped)


def expect_question(record: Record, messages: Sequence[Message]) -> None:
    """Raises BadMessage for a reply that answers nothing; a plain text needs no question, all of it is trained on."""
    if record.format != "text" and not has_question(messages):
        raise BadMessage("no_prompt", "the row has a reply, but no prompt under any of the usual names")


def has_question(messages: Sequence[Message]) -> bool:
    """Does anything ask, in words or otherwise?"""
    return any(
        message["role"] not in _UNASKED and (message["role"] != "user" or _says_something(message.get("content")))
        for message in messages
    )


def _says_something(content: Any) -> bool:
    return bool(content.strip() if isinstance(content, str) else content)


def told_cut(rollout: StoredRollout) -> list[Message]:
    """The messages up to the last reply, which says itself (by its finish reason) when it was cut off."""
    messages: list[Message] = rollout.messages[: useful_end(rollout.messages)]
    cut = rollout.reply_cut
    if cut is not None and messages and rollout.reply is messages[-1] and not is_cut(messages[-1]):
        messages = [*messages[:-1], {**messages[-1], "finish_reason": "length" if cut == "marked" else cut}]
    return messages


def is_cut(message: Message) -> bool:
    """Was this reply cut off, so that no end mark belongs behind it?"""
    return len(message) > 2 and cut_by(message.get("finish_reason")) is not None


def check_uncut(messages: Sequence[Message], where: str) -> None:
    """For rows of text: a trainer writes an end token behind them. Raises BadMessage for a reply that was cut off."""
    if any(message["role"] == "assistant" and is_cut(message) for message in messages):
        raise BadMessage(
            "cut_end_mark", f"a reply was cut off, and {where} cannot say so: a trainer would teach it an end token"
        )


def lineage_of(record: Record, rollout: StoredRollout, fields: Sequence[str] = ()) -> Row:
    """The columns that lead back from a row to its rollout, and the fields asked for."""
    found: Row = {"rollout": rollout_id(record, rollout), "task": record.task_key, "score": rollout.score}
    if record.task_name is not None:
        found[TASK_NAME] = record.task_name
    if fields:
        parallel = parallel_keys(record.raw, len(record.rollouts)) if record.format == "atropos" else []
        for name in fields:
            if name in parallel:
                found[name] = record.raw[name][rollout.index]
            elif name in record.raw:
                found[name] = record.raw[name]
            elif name in record.info:
                found[name] = record.info[name]
    return found


def has_field(record: Record, name: str) -> bool:
    """Is there a field of this name to carry along?"""
    return name in record.raw or name in record.info


def rollout_id(record: Record, rollout: StoredRollout) -> str:
    """The rollout's own id where it has one, else the record's id and its place."""
    if record.format == "native" and isinstance(rollout.raw.get("id"), str):
        return str(rollout.raw["id"])
    return record.id if len(record.rollouts) == 1 else f"{record.id}/{rollout.index}"


def each_turn(sample: Sample) -> list[Sample]:
    """One sample for each trained turn, with the conversation up to it."""
    return [replace(sample, messages=sample.messages[: i + 1], trained=[i]) for i in sample.trained]


def clean(message: Message, *, arguments_as_text: bool = False) -> Message:
    """A message as training data holds it: thinking as `reasoning_content`, arguments as objects, no bookkeeping."""
    content = message.get("content")
    if len(message) == 2 and isinstance(content, str):
        return message
    made: Message = {"role": message["role"], "content": content}
    if isinstance(content, list | tuple) and all(part.get("type") == "text" for part in content):
        made["content"] = plain_text(message)
    if message.get("reasoning"):
        made["reasoning_content"] = message["reasoning"]
    if message.get("tool_calls"):
        calls = objects_of(message["tool_calls"])
        if arguments_as_text:
            for call in calls:
                call["function"]["arguments"] = dump(call["function"]["arguments"]).decode()
        made["tool_calls"] = calls
    for key in ("tool_call_id", "name"):
        if message.get(key):
            made[key] = message[key]
    if message.get("weight", 1) != 1:
        made["weight"] = message["weight"]
    if is_cut(message):
        made["finish_reason"] = finish_of(message["finish_reason"])
    return made


def _has_text(message: Message) -> bool:
    """Does an assistant message say or call anything? Thinking that never came to an answer does not count."""
    content = message.get("content")
    if type(content) is str and content and not may_think(content) and not content.isspace():
        return True  # the usual case
    if message.get("tool_calls"):
        return True
    if isinstance(content, str):
        return bool(content.strip() and thinking_of(message)[1])
    return bool(content)


def useful_end(messages: Sequence[Message]) -> int:
    """The end of the conversation without the messages after its last reply; 0 without a reply."""
    end = len(messages)
    while end and not (messages[end - 1]["role"] == "assistant" and _has_text(messages[end - 1])):
        end -= 1
    return end


def normal(messages: list[Message], form: ThinkingForm) -> list[Message]:
    """The messages with their thinking in one form; the same list when none of them thinks."""
    if form == "keep":
        return messages
    for message in messages:
        if message["role"] == "assistant":
            content = message.get("content")
            if "reasoning" in message or (type(content) is str and may_think(content)):
                return normal_messages(messages, form)
            if type(content) is str:
                log_unknown_marks(content)
    return messages
