"""The product's own format: one ScoredGroup a line, as `gen` writes it (domain.group)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atropos_cli.domain.group import SCHEMA_VERSION
from atropos_cli.domain.task import TASK_NAME, kind_of_info
from atropos_cli.domain.tokendata import is_binary
from atropos_cli.io.formats.common import (
    Format,
    expect_count,
    expect_ids,
    expect_list,
    expect_logprobs,
    last_finish,
    read_score,
)
from atropos_cli.io.formats.errors import RowError
from atropos_cli.io.formats.toolcalls import tools_of
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Message, Record, Row, StoredRollout, TokenSeq

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_MESSAGE_KEYS = frozenset({"role", "content", "reasoning", "tool_calls", "tool_call_id", "name", "finish_reason"})


def matches(raw: Row) -> bool:
    return "rollouts" in raw and ("group_id" in raw or "schema_version" in raw)


def read(raw: Row, source: str, line: int) -> Record:
    """A Record of a ScoredGroup object. Raises RowError."""
    version = raw.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise RowError("schema_version", f"at most {SCHEMA_VERSION} (a newer atropos wrote this)", kind_of(version))
    group_id = raw.get("group_id")
    if not isinstance(group_id, str):
        raise RowError("group_id", "text", kind_of(group_id))
    task = raw.get("task")
    if not isinstance(task, dict):
        raise RowError("task", "a task object", kind_of(task))
    rollouts = expect_list(raw.get("rollouts"), "rollouts", "a list of rollouts")
    advantages = raw.get("advantages")
    if isinstance(advantages, list) and len(advantages) != len(rollouts):
        raise RowError("advantages", f"{len(rollouts)} entries, as many as rollouts", f"{len(advantages)}")
    prompt = _messages(task.get("prompt", []), "task.prompt")
    raw_info = task.get("info")
    info: Row = raw_info if isinstance(raw_info, dict) else {}
    env = raw.get("env")
    record = Record(
        id=group_id,
        raw=raw,
        format="native",
        task_id=str(task["id"]) if task.get("id") is not None else None,
        env=env if isinstance(env, str) else None,
        task_name=kind_of_info(info),
        source=source,
        line=line,
        model=_typed(raw, "model", str),
        seed=_typed(raw, "seed", int),
        episode_id=_typed(raw, "episode_id", str),
        turn=_typed(raw, "turn", int),
        answer=task.get("answer"),
        info=info,
        tools=tools_of(info),
        prompt_messages=prompt or None,
        cut=cut,
    )
    for i, rollout in enumerate(rollouts):
        record.rollouts.append(_rollout(rollout, i, record))
    return record


def _rollout(rollout: Any, index: int, record: Record) -> StoredRollout:
    field = f"rollouts[{index}]"
    if not isinstance(rollout, dict):
        raise RowError(field, "a rollout object", kind_of(rollout))
    messages = _messages(rollout.get("messages"), f"{field}.messages")
    score, odd = read_score(rollout.get("reward"), f"{field}.reward")
    if odd:
        record.non_finite.append(index)
    failure, rewards = rollout.get("failure"), rollout.get("rewards")
    prompt_length = _prompt_length(messages, record)
    return StoredRollout(
        messages=_weighted(messages, prompt_length),
        score=score,
        raw=rollout,
        index=index,
        prompt_length=prompt_length,
        finish_reason=last_finish(messages),
        stop_reason=_typed(rollout, "stop_reason", str),
        failure=failure if isinstance(failure, dict) else None,
        rewards=rewards if isinstance(rewards, dict) else {},
        read_tokens=tokens,
    )


def _typed(raw: Row, key: str, kind: type) -> Any:
    """The value when it has the type it should have; other tools may have put anything there."""
    value = raw.get(key)
    return value if isinstance(value, kind) else None


def _messages(value: Any, field: str) -> list[Message]:
    messages = expect_list(value, field, "a list of messages")
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            raise RowError(f"{field}[{i}]", "a message", kind_of(message))
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise RowError(f"{field}[{i}].role", "one of " + ", ".join(sorted(_ROLES)), kind_of(role))
        content = message.get("content")
        if not (isinstance(content, str | list) or content is None):
            raise RowError(f"{field}[{i}].content", "text, content parts or null", kind_of(content))
        if (span := message.get("tokens")) is not None:
            _check_span(span, f"{field}[{i}].tokens")
    return messages


def _check_span(span: Any, field: str) -> None:
    """Raises RowError for invalid token data (domain.tokendata)."""
    if not isinstance(span, dict):
        raise RowError(field, "{ids, mask, logprobs}", kind_of(span))
    ids = span.get("ids")
    count = len(expect_ids(ids, f"{field}.ids"))
    mask = span.get("mask", False)
    if isinstance(mask, list):
        expect_count(mask, f"{field}.mask", count, "ids")
    for key, flags in (("mask", mask), ("restart", span.get("restart", False))):
        if not is_binary(flags if isinstance(flags, list) else [flags]):
            raise RowError(f"{field}.{key}", "true and false, or 1 and 0", repr(flags)[:60])
    expect_logprobs(span.get("logprobs"), f"{field}.logprobs", count, "ids")


def _prompt_length(messages: list[Message], record: Record) -> int:
    """The index of the first trained reply: history of a group that is one turn of an episode is prompt."""
    start = len(record.prompt_messages) if record.prompt_messages else 0
    if start and not _begins_with(messages, record.prompt_messages or []):
        start = 0
    replies = [i for i in range(start, len(messages)) if messages[i]["role"] == "assistant"]
    if not replies:
        return len(messages)
    for i in replies:
        if _trained(messages[i].get("tokens")):
            return i
    if record.turn is not None:
        return replies[-1]
    return next((i for i in replies if messages[i].get("finish_reason") is not None), replies[0])


def _weighted(messages: list[Message], begin: int) -> list[Message]:
    """Those that the environment put into the model's mouth (an example, another player's reply) are not trained on.

    A reply of the model has a finish reason or tokens; where none has, all messages of the assistant are replies.
    """
    if not any(map(sampled, messages[begin:])):
        return messages
    return [
        {**message, "weight": 0.0}
        if i >= begin and message["role"] == "assistant" and not sampled(message)
        else message
        for i, message in enumerate(messages)
    ]


def sampled(message: Message) -> bool:
    """Is it a reply of the model, by what `gen` notes of each?"""
    return message["role"] == "assistant" and (
        message.get("finish_reason") is not None or _trained(message.get("tokens"))
    )


def _begins_with(messages: list[Message], prompt: list[Message]) -> bool:
    return len(messages) >= len(prompt) and all(
        a["role"] == b["role"] and a.get("content") == b.get("content") for a, b in zip(messages, prompt, strict=False)
    )


def _trained(span: Any) -> bool:
    if not isinstance(span, dict):
        return False
    mask = span.get("mask", False)
    return any(mask) if isinstance(mask, list) else bool(mask)


def tokens(rollout: StoredRollout) -> tuple[TokenSeq, ...]:
    """The message's token spans joined; a span marked `restart` begins a new sequence (domain.rollout)."""
    sequences: list[TokenSeq] = []
    ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    known = True

    def flush() -> None:
        if ids and any(mask):
            sequences.append(TokenSeq(ids, mask, logprobs if known else None))

    for message in rollout.messages:
        span = message.get("tokens")
        if span is None:
            continue
        if span.get("restart"):
            flush()
            ids, mask, logprobs, known = [], [], [], True
        n = len(span["ids"])
        trained = span.get("mask", False)
        trained = list(map(bool, trained)) if isinstance(trained, list) else [bool(trained)] * n
        ids += span["ids"]
        mask += trained
        values = span.get("logprobs")
        if values is not None:
            logprobs += values
        else:
            logprobs += [0.0] * n
            known = known and not any(trained)
    flush()
    return tuple(sequences)


def cut(record: Record, kept: Sequence[StoredRollout]) -> list[Row]:
    """The group with some rollouts left out; advantages stay those of the whole group."""
    raw = dict(record.raw)
    raw["rollouts"] = [rollout.raw for rollout in kept]
    if isinstance(raw.get("advantages"), list):
        raw["advantages"] = [raw["advantages"][rollout.index] for rollout in kept]
    return [raw]


def native_group(record: Record) -> Row:
    """Any record as a ScoredGroup object."""
    if record.format == "native":
        return record.raw
    task_id = record.task_id or record.id
    task: Row = {"id": task_id, "prompt": [_plain(m) for m in record.prompt], "answer": record.answer}
    info = dict(record.info)
    if record.task_name is not None:
        info.setdefault(TASK_NAME, record.task_name)
    if record.tools is not None:
        info.setdefault("tools", record.tools)
    task["info"] = info
    group: Row = {
        "schema_version": SCHEMA_VERSION,
        "group_id": record.id,
        "last": True,
        "env": record.env or "unknown",
        "task": task,
        "rollouts": [_rollout_row(record, rollout, task_id) for rollout in record.rollouts],
        "model": record.model or "unknown",
    }
    for key in ("seed", "episode_id", "turn"):
        value = getattr(record, key)
        if value is not None:
            group[key] = value
    return group


def _rollout_row(record: Record, rollout: StoredRollout, task_id: str) -> Row:
    messages = [_plain(message) for message in rollout.messages]
    last = next((m for m in reversed(messages) if m["role"] == "assistant"), None)
    if last is not None:
        if rollout.finish_reason is not None:
            last.setdefault("finish_reason", rollout.finish_reason)
        if len(rollout.sequences) == 1:
            ids, mask, logprobs = rollout.sequences[0]
            last["tokens"] = {"ids": ids, "mask": mask, "logprobs": logprobs, "restart": True}
    row: Row = {
        "id": f"{record.id}/{rollout.index}",
        "task_id": task_id,
        "messages": messages,
        "rewards": dict(rollout.rewards),
        "reward": rollout.score,
    }
    if rollout.failure is not None:
        row["failure"] = rollout.failure
    if (cut := rollout.cut) is not None:
        row["stop_reason"] = "step_limit" if cut == "marked" else cut
    elif rollout.stop_reason is not None or rollout.finish_reason is not None:
        row["stop_reason"] = "done"
    return row


def _plain(message: Message) -> Message:
    """A copy with the keys of domain.messages.Message only."""
    return {key: value for key, value in message.items() if key in _MESSAGE_KEYS}


FORMAT = Format("native", True, matches, read, "atropos groups: {group_id, task, rollouts: [{messages, reward}]}")
