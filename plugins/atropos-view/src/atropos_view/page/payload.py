"""Records as JSON for the page: summaries for the list, whole groups, tokens. Long texts are cut, and say so.

Nothing here trusts the shape of a record's inner objects: they are strangers' JSON.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from atropos_cli.sdk.data import Record, StoredMessage, StoredRollout, TokenSeq, is_finite, text_of
from atropos_view.analysis.analysis import task_label
from atropos_view.page import parts
from atropos_view.page.parts import BRIEF, Cutter, plain
from atropos_view.page.runs import Unreadable

BUDGET = 4_000_000
"""Characters of a whole group; beyond it texts are cut to a few words."""

IMAGES = 16_000_000
"""Characters of all images of a group."""

ROLLOUTS = 64
"""Rollouts of a group that are sent at once."""

MESSAGES = 400
TOKENS = 20_000
SCORES = 4_096
"""Rewards of a group that are sent with its summary."""


def summary(position: int, group: Record | Unreadable) -> dict[str, Any]:
    """One line of the list."""
    if isinstance(group, Unreadable):
        return {"n": position, "problem": group.problem, "task": group.where}
    rollouts = group.rollouts
    scores = [None if rollout.failure is not None else rollout.score for rollout in rollouts]
    known = [score for score in scores if score is not None]
    preview = next((text for m in reversed(group.prompt) if m["role"] != "system" and (text := text_of(m).strip())), "")
    reasons = [_reason(rollout) or "" for rollout in rollouts[:SCORES]]
    task = task_label(group)
    brief = " ".join(preview[:BRIEF].split())
    return {
        "n": position,
        "id": group.id[:BRIEF],
        "task": task,
        "env": (group.env or group.task_name or "")[:BRIEF],
        "turn": group.turn,
        "scores": scores[:SCORES],
        "rollouts": len(scores),
        "failed": [i for i, rollout in enumerate(rollouts[:SCORES]) if rollout.failure is not None],
        "cut": [i for i, rollout in enumerate(rollouts[:SCORES]) if rollout.failure is None and rollout.truncated],
        "mean": _mean(known),
        "preview": "" if brief.startswith(task[:40]) else brief,
        "stops": reasons[:1] if len(set(reasons)) == 1 else reasons,
        "length": _length(rollouts),
    }


def _mean(values: Sequence[float]) -> float | None:
    try:
        return math.fsum(values) / len(values) if values else None
    except OverflowError:  # the sum of huge ones is no number, their mean is
        return math.fsum(value / len(values) for value in values)


def _length(rollouts: Sequence[StoredRollout]) -> list[Any] | None:
    """[mean length of the replies, its unit]: tokens where the rows count them, else characters."""
    told = [count for rollout in rollouts if (count := rollout.billed_tokens) is not None]
    if told:
        return [round(sum(told) / len(told), 1), "tokens"]
    texts = [len(rollout.completion_text) for rollout in rollouts if rollout.failure is None]
    return [round(sum(texts) / len(texts), 1), "characters"] if texts else None


def group(position: int, found: Record | Unreadable, first: int = 0) -> dict[str, Any]:
    """A whole group: what its rollouts share, and ROLLOUTS of them from `first` on."""
    if isinstance(found, Unreadable):
        return {"n": position, "problem": found.problem, "where": found.where, "text": found.text}
    cutter = Cutter(BUDGET, IMAGES)
    shown = found.rollouts[first : first + ROLLOUTS]
    prompt = _shared_prompt(shown) if shown else found.prompt
    tools = parts.tools_of(prompt, found.tools)
    return {
        "n": position,
        "id": found.id[:BRIEF],
        "where": found.where,
        "format": found.format,
        "task": task_label(found),
        "named": found.task_id is not None,
        "env": (found.env or found.task_name or "")[:BRIEF],
        "model": found.model,
        "seed": found.seed,
        "episode": found.episode_id,
        "turn": found.turn,
        "answer": _text(cutter, found.answer),
        "info": _text(cutter, found.info or None),
        "tools": _text(cutter, found.tools),
        "prompt": [parts.message(cutter, message, i, tools) for i, message in enumerate(prompt[:MESSAGES])],
        "first": first,
        "total": len(found.rollouts),
        "rollouts": [_rollout(cutter, found, rollout, len(prompt)) for rollout in shown],
    }


def _shared_prompt(rollouts: Sequence[StoredRollout]) -> list[StoredMessage]:
    """The messages of the prompt with which all rollouts begin (by role and content)."""
    shared = rollouts[0].prompt
    for rollout in rollouts[1:]:
        if rollout.prompt is shared:
            continue
        for i, (a, b) in enumerate(zip(shared, rollout.prompt, strict=False)):
            if a["role"] != b["role"] or a.get("content") != b.get("content"):
                shared = shared[:i]
                break
        else:
            shared = shared[: len(rollout.prompt)]
    return shared


def _rollout(cutter: Cutter, record: Record, rollout: StoredRollout, start: int) -> dict[str, Any]:
    messages = rollout.messages[start : start + MESSAGES]
    tools = parts.tools_of(rollout.messages, record.tools)
    data: dict[str, Any] = {
        "index": rollout.index,
        "score": rollout.score,
        "advantage": _advantage(record, rollout),
        "rewards": _numbers(rollout.rewards),
        "metrics": _numbers(rollout.raw.get("metrics")) if rollout.raw is not record.raw else {},
        "label": rollout.label,
        "stop": rollout.stop_reason,
        "finish": rollout.finish_reason,
        "truncated": rollout.truncated,
        "tokens": token_counts(rollout),
        "messages": [parts.message(cutter, message, start + i, tools) for i, message in enumerate(messages)],
        "more": max(0, len(rollout.messages) - start - MESSAGES),
    }
    if rollout.failure is not None:
        data["failure"] = {key: cutter.cut(plain(rollout.failure.get(key)))[0] for key in ("stage", "type", "message")}
    return data


def _reason(rollout: StoredRollout) -> str | None:
    return rollout.stop_reason or rollout.finish_reason


def _advantage(record: Record, rollout: StoredRollout) -> float | None:
    values = record.raw.get("advantages")
    if not isinstance(values, list) or len(values) != len(record.rollouts):
        return None
    value = values[rollout.index] if rollout.index < len(values) else None
    return float(value) if is_finite(value) else None


def _numbers(values: Any) -> dict[str, float]:
    if not isinstance(values, dict):
        return {}
    shown = ((name, int(value) if isinstance(value, bool) else value) for name, value in list(values.items())[:50])
    return {str(name)[:BRIEF]: value for name, value in shown if is_finite(value)}


def _text(cutter: Cutter, value: Any) -> str | None:
    return None if value is None else cutter.cut(plain(value))[0]


def full_text(found: Record | Unreadable, rollout: int, message: int, part: int) -> str | None:
    """The whole of a text that was cut; None when there is no such text."""
    if isinstance(found, Unreadable):
        return None
    if rollout < 0:
        messages = found.prompt
    elif rollout < len(found.rollouts):
        messages = found.rollouts[rollout].messages
    else:
        return None
    return parts.full_text(messages[message], part, found.tools or ()) if 0 <= message < len(messages) else None


def _sequences(rollout: StoredRollout) -> tuple[TokenSeq, ...]:
    """The token sequences of a rollout, without those whose lists are no ids."""
    try:
        return tuple(
            sequence
            for sequence in rollout.sequences
            if len(sequence.mask) == len(sequence.ids) and all(type(token) is int for token in sequence.ids)
        )
    except (TypeError, ValueError, KeyError):
        return ()


def token_counts(rollout: StoredRollout) -> dict[str, Any] | None:
    """How many tokens are stored and trained, and whether they have log probabilities."""
    sequences = _sequences(rollout)
    if not sequences:
        return None
    return {
        "total": sum(len(sequence.ids) for sequence in sequences),
        "trained": sum(map(sum, (sequence.mask for sequence in sequences))),
        "logprobs": all(sequence.logprobs is not None for sequence in sequences),
    }


def tokens(found: Record | Unreadable, rollout: int, decode: Any = None, limit: int = TOKENS) -> list[dict[str, Any]]:
    """The sequences of a rollout: ids, mask as text of 0 and 1, log probabilities, texts with a tokenizer.

    At most `limit` tokens in all; `total` of a sequence is what it has.
    """
    if isinstance(found, Unreadable) or not 0 <= rollout < len(found.rollouts):
        return []
    data = []
    for sequence in _sequences(found.rollouts[rollout]):
        ids = sequence.ids[:limit]
        limit -= len(ids)
        logprobs = sequence.logprobs[: len(ids)] if sequence.logprobs is not None else None
        data.append(
            {
                "ids": ids,
                "mask": "".join("1" if trained else "0" for trained in sequence.mask[: len(ids)]),
                "logprobs": None if logprobs is None else _rounded(logprobs),
                "texts": token_texts(ids, decode) if decode is not None else None,
                "total": len(sequence.ids),
            }
        )
    return data


def _rounded(values: Sequence[Any]) -> list[float | None]:
    try:
        if math.isfinite(math.fsum(values)):  # then each of them is; a look at each takes twice as long
            return [round(value, 4) for value in values]
    except (TypeError, ValueError, OverflowError):
        pass
    return [round(value, 4) if is_finite(value) else None for value in values]


def token_texts(ids: Sequence[int], decode: Any) -> list[str]:
    """The text of each token. A character that spans tokens stands at the last of them, the others are empty."""
    texts: list[str] = []
    waiting: list[int] = []
    for token in ids:
        waiting.append(token)
        try:
            text = decode(waiting)
        except (OverflowError, ValueError, TypeError, IndexError, KeyError):
            text = f"<{token}>"  # no token of this tokenizer
        if text.endswith("\ufffd") and len(waiting) < 8:
            texts.append("")
            continue
        texts.append(text)
        waiting = []
    if waiting:
        texts[-1] = "\ufffd"
    return texts
