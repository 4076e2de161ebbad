"""Conversations longer than a token limit: left out, cut in the middle of their prompt, or split into several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from atropos_cli.datasets.convert.samples import Sample
from atropos_cli.datasets.convert.spec import OverLength
from atropos_cli.datasets.convert.turns import BadMessage, plain_text
from atropos_cli.io.records import Message

Count = Callable[[Sequence[Message]], int]
"""Tokens of a rendered conversation."""

CUT = "\n[...]\n"
"""The mark in place of the text that was cut."""

_KEPT = 100  # characters that stay on each side of a cut
_ROUNDS = 8


def fit(sample: Sample, limit: int, policy: OverLength, count: Count) -> list[Sample]:
    """The samples that hold to the limit: the same one, a shortened one, or parts. Raises BadMessage (too_long)."""
    length = count(sample.messages)
    if length <= limit:
        return [sample]
    if policy == "truncate-prompt-middle":
        return [_shortened(sample, limit, length, count)]
    parts = _parts(sample, limit, count) if policy == "split" else []
    if not parts:
        raise BadMessage("too_long", f"{length} tokens, and the limit is {limit}")
    return parts


def _shortened(sample: Sample, limit: int, length: int, count: Count) -> Sample:
    """Texts of the system, the user and tools lose their middles, the longest first; replies stay whole."""
    messages = list(sample.messages)
    for _ in range(_ROUNDS):
        place = max(
            (i for i in range(sample.trained[-1]) if messages[i]["role"] != "assistant"),
            key=lambda i: len(plain_text(messages[i])),
            default=None,
        )
        if place is None:
            break
        text = plain_text(messages[place])
        room = len(text) - 2 * _KEPT - len(CUT)
        if room <= 0:
            break
        whole = sum(len(plain_text(message)) for message in messages) or 1
        # Characters for the tokens that are too many, and a little more, since parts differ in density.
        wanted = int((length - limit) * max(whole / length, 1.0) * 1.1) + len(CUT) + 1
        messages[place] = {**messages[place], "content": _without_middle(text, min(wanted, room + len(CUT)))}
        length = count(messages)
        if length <= limit:
            return replace(sample, messages=messages)
    raise BadMessage("too_long", f"{length} tokens after its prompt was cut, and the limit is {limit}")


def _without_middle(text: str, count: int) -> str:
    """The text with `count` characters around its middle replaced by the mark of a cut."""
    keep = max(len(text) - count, 0)
    head = (keep + 1) // 2
    return text[:head] + CUT + text[len(text) - (keep - head) :]


def _parts(sample: Sample, limit: int, count: Count) -> list[Sample]:
    """Runs of whole exchanges, each behind the system messages; every trained turn is in one part at most."""
    messages = sample.messages
    first = next((i for i, message in enumerate(messages) if message["role"] not in ("system", "developer")), 0)
    starts = [i for i in range(first, len(messages)) if messages[i]["role"] == "user"] or [first]
    starts[0] = first
    ends = [*starts[1:], len(messages)]
    parts: list[Sample] = []
    begin: int | None = None
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        begin = start if begin is None else begin
        following = ends[k + 1] if k + 1 < len(ends) else None
        if count([*messages[:first], *messages[begin:end]]) > limit:
            begin = None  # this exchange alone is too long
        elif following is None or count([*messages[:first], *messages[begin:following]]) > limit:
            parts += _part(sample, first, begin, end)
            begin = None
    return parts


def _part(sample: Sample, first: int, begin: int, end: int) -> list[Sample]:
    trained = [i - begin + first for i in sample.trained if begin <= i < end]
    if not trained:
        return []
    messages = [*sample.messages[:first], *sample.messages[begin:end]][: trained[-1] + 1]
    return [replace(sample, messages=messages, trained=trained)]


def shorten_ids(ids: Sequence[int], mask: Sequence[bool], limit: int) -> tuple[list[int], list[bool]]:
    """Stored tokens without the middle of untrained stretches, the longest first. Raises BadMessage.

    Nothing trained is touched, and each stretch keeps its ends.
    """
    kept_ids, kept_mask = list(ids), list(mask)
    while (excess := len(kept_ids) - limit) > 0:
        begin, end = _longest_stretch(kept_mask)
        room = end - begin - 2 * _KEPT_TOKENS
        if room <= 0:
            raise BadMessage("too_long", f"{len(kept_ids)} tokens after its prompt was cut, and the limit is {limit}")
        size = min(excess, room)
        at = begin + (end - begin - size) // 2
        del kept_ids[at : at + size]
        del kept_mask[at : at + size]
    return kept_ids, kept_mask


_KEPT_TOKENS = 24  # on each side of a cut: role markers and what frames a message


def _longest_stretch(mask: Sequence[bool]) -> tuple[int, int]:
    best, begin = (0, 0), None
    for i, trained in enumerate([*mask, True]):
        if trained:
            if begin is not None and i - begin > best[1] - best[0]:
                best = (begin, i)
            begin = None
        elif begin is None:
            begin = i
    return best
