"""Groups as NousResearch's atroposlib writes them: parallel lists, one entry for each rollout.

    {"tokens": [[...]], "masks": [[...]], "scores": [...], "messages": [[...]], "inference_logprobs": [[...]], ...}

tokens and masks may be absent (`{item_id, messages, scores}`). masks hold -100 where a token is not
trained on and the token id elsewhere; inference_logprobs hold 1.0 at masked positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import eq
from typing import Any

from atropos_cli.domain.finish import finish_of
from atropos_cli.domain.tokendata import is_binary
from atropos_cli.io.formats.common import (
    Format,
    cut_history,
    expect_count,
    expect_ids,
    expect_list,
    expect_logprobs,
    first_reply,
    last_finish,
    new_record,
    read_score,
    side_fields,
)
from atropos_cli.io.formats.errors import RowError
from atropos_cli.io.formats.prompts import dialogue, in_context
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Message, Record, Row, StoredRollout, TokenSeq, no_tokens

PARALLEL = frozenset({
    "tokens", "masks", "scores", "messages", "advantages", "ref_logprobs", "inference_logprobs", "overrides", "images",
    "distill_token_ids", "distill_logprobs", "finish_reasons", "token_scores", "token_weights", "bootcamp_names",
    "score_errors",
})  # fmt: skip
"""Fields known to hold one entry for each rollout."""
_STRUCTURE = frozenset({
    "tokens", "masks", "scores", "messages", "advantages", "ref_logprobs", "inference_logprobs", "overrides",
    "group_overrides", "generation_params", "images", "distill_token_ids", "distill_logprobs", "finish_reasons",
    "token_scores", "token_weights", "score_history", "score_errors", "scorer",
})  # fmt: skip
_WHOLE = frozenset({
    "tools", "tests", "choices", "tags", "path", "question", "prompt", "history", "metadata", "info", "answer",
    "ground_truth", "answer_key", "generation_params", "group_overrides", "score_history",
})  # fmt: skip


def matches(raw: Row) -> bool:
    if "scores" in raw and ("messages" in raw or "tokens" in raw):
        return True
    if "tokens" in raw and "masks" in raw:
        return True
    messages = raw.get("messages")
    return isinstance(messages, list) and bool(messages) and isinstance(messages[0], list)


def read(raw: Row, source: str, line: int) -> Record:
    """A Record of a group with parallel lists. Raises RowError when a list has another length.

    A ScoredDataItem, whose score is a number, is a group of one.
    """
    if type(raw.get("scores")) in (int, float) and all(_is_flat(raw.get(key)) for key in ("tokens", "masks")):
        raw = {key: [value] if key in PARALLEL and value is not None else value for key, value in raw.items()}
    conversations = raw.get("messages")
    tokens = raw.get("tokens")
    if conversations == [] and tokens:  # atroposlib writes [] for an absent field
        conversations = None
    if conversations is None and tokens is None:
        raise RowError("messages", "a list of conversations", kind_of(None))
    name = "messages" if conversations is not None else "tokens"
    count = len(
        expect_list(raw[name], name, "a list of conversations" if name == "messages" else "a list of token lists")
    )
    scores = _parallel(raw, "scores", count, name)
    masks = _parallel(raw, "masks", count, name)
    tokens = _parallel(raw, "tokens", count, name)
    finish = _parallel(raw, "finish_reasons", count, name)
    logprobs = _parallel(raw, "inference_logprobs", count, name)
    _parallel(raw, "advantages", count, name)
    record = new_record(raw, "atropos", source, line)
    record.info = side_fields(raw, _STRUCTURE)
    record.cut = cut
    tokens_of = read_tokens if tokens is not None else no_tokens
    rollouts = record.rollouts
    for i in range(count):
        messages = _conversation(raw, i, record.tools) if conversations is not None else []
        score = scores[i] if scores is not None else None
        if type(score) is not float or not math.isfinite(score):
            score, odd = read_score(score, f"scores[{i}]")
            if odd:
                record.non_finite.append(i)
        if tokens is not None:
            _check_tokens(
                tokens[i], masks[i] if masks is not None else None, logprobs[i] if logprobs is not None else None, i
            )
        reason = finish_of(finish[i]) if finish is not None else last_finish(messages)
        rollouts.append(
            StoredRollout(
                messages,
                score,
                raw,
                i,
                first_reply(messages),
                reason,
                read_tokens=tokens_of,
            )
        )
    return record


def _is_flat(value: Any) -> bool:
    return value is None or (isinstance(value, list) and not any(isinstance(item, list) for item in value))


def _conversation(raw: Row, i: int, tools: list[Row] | None) -> list[Message]:
    return in_context(dialogue(raw["messages"][i], f"messages[{i}]", tools), raw, tools=tools)


def _parallel(raw: Row, key: str, count: int, other: str) -> list[Any] | None:
    value = raw.get(key)
    if value is None or (value == [] and key != "scores" and count):  # atroposlib writes [] for an absent field
        return None
    expect_count(value, key, count, other)
    items: list[Any] = value
    return items


def _check_tokens(ids: Any, mask: Any, logprobs: Any, i: int) -> None:
    """Raises RowError for invalid token data (domain.tokendata), and for lists of unlike lengths."""
    ids = expect_ids(ids, f"tokens[{i}]")
    if mask is not None:
        expect_count(mask, f"masks[{i}]", len(ids), f"tokens[{i}]")
        are_labels = set(map(type, mask)) <= {int} and mask.count(-100) + sum(map(eq, mask, ids)) == len(ids)
        if not are_labels and not is_binary(mask):
            odd = next(
                (
                    label
                    for label, token in zip(mask, ids, strict=True)
                    if type(label) is not int or label not in (-100, token)
                ),
                None,
            )
            raise RowError(f"masks[{i}]", "the token's own id or -100, or a mask of 0 and 1", repr(odd))
    if logprobs:
        if None in logprobs:  # one that is missing
            logprobs = [0.0 if value is None else value for value in logprobs]
        expect_logprobs(logprobs, f"inference_logprobs[{i}]", len(ids), f"tokens[{i}]")


def read_tokens(rollout: StoredRollout) -> tuple[TokenSeq, ...]:
    """The rollout's stored tokens as one training sequence; none without masks."""
    ids = rollout.raw["tokens"][rollout.index]
    masks = rollout.raw.get("masks")
    if not isinstance(masks, list) or rollout.index >= len(masks):
        return ()
    labels = masks[rollout.index]
    if labels and is_binary(labels):
        mask = [label == 1 for label in labels]  # a 0/1 mask instead of labels
    else:
        mask = [label != -100 for label in labels]
    stored = rollout.raw.get("inference_logprobs")
    values = stored[rollout.index] if isinstance(stored, list) and len(stored) > rollout.index else None
    logprobs = None
    if isinstance(values, list) and len(values) == len(ids):
        pairs = list(zip(values, mask, strict=True))
        if all(value is not None for value, used in pairs if used):
            logprobs = [float(value) if used else 0.0 for value, used in pairs]
    return (TokenSeq(ids, mask, logprobs),) if any(mask) else ()


def parallel_keys(raw: Row, count: int) -> list[str]:
    """The fields that hold one entry for each rollout, and so are cut with the rollouts.

    Known names, and any other list of the same length that is not a field of the whole group by its name.
    """
    return [key for key, value in raw.items() if isinstance(value, list) and len(value) == count and key not in _WHOLE]


def cut(record: Record, kept: Sequence[StoredRollout]) -> list[Row]:
    """The group with some rollouts left out: all parallel lists are cut alike, other fields stay."""
    raw = dict(record.raw)
    count = len(record.rollouts)
    for key in parallel_keys(raw, count):
        raw[key] = [raw[key][rollout.index] for rollout in kept]
    cut_history(raw, kept, count)
    return [raw]


FORMAT = Format(
    "atropos", True, matches, read, "groups of parallel lists: {messages: [[...]], scores: [...], tokens?, masks?}"
)
