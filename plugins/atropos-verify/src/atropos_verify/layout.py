"""Rewards for the layout of a reply: tags in order, once each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from atropos_cli.sdk import ConfigError, Reward, Rollout, Task


def tags_in_order(text: str, tags: Sequence[str], *, strict: bool = True, prompt_opens: bool = False) -> bool:
    """True when each <tag>...</tag> occurs exactly once, in this order, not nested, and not empty.

    strict: only white space is outside the blocks. prompt_opens: the chat template has
    written the first opening tag, so that the text begins inside that block.
    """
    if prompt_opens and tags and f"<{tags[0]}>" not in text:
        text = f"<{tags[0]}>" + text
    pos = 0
    outside: list[str] = []
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        if text.count(opening) != 1 or text.count(closing) != 1:
            return False
        begin, end = text.find(opening), text.find(closing)
        if begin < pos or end < begin or not text[begin + len(opening) : end].strip():
            return False
        outside.append(text[pos:begin])
        pos = end + len(closing)
    outside.append(text[pos:])
    return not strict or not "".join(outside).strip()


def format_reward(
    tags: Sequence[str] = ("think", "answer"),
    *,
    strict: bool = True,
    prompt_opens: bool = False,
    reply_after: bool = False,
    name: str = "format",
) -> Reward:
    """1.0 for the layout that `tags_in_order` describes, else 0.0.

    reply_after: something must follow the last block (use with strict=False). The content of the last
    message is looked at; with a server that cuts the thinking out of it, do not ask for a think tag.
    """
    wanted = tuple(tags)
    if (
        not wanted
        or any(not re.fullmatch(r"[A-Za-z_][\w:.-]*", tag) for tag in wanted)
        or len(set(wanted)) < len(wanted)
    ):
        raise ConfigError(f"tags={wanted!r}: give different tag names without brackets")
    if strict and reply_after:
        raise ConfigError("strict and reply_after exclude each other: strict allows nothing after the last block")

    def score(task: Task, rollout: Rollout) -> float:
        text = rollout.text
        if not tags_in_order(text, wanted, strict=strict, prompt_opens=prompt_opens):
            return 0.0
        return float(not reply_after or bool(text.rpartition(f"</{wanted[-1]}>")[2].strip()))

    score.__doc__ = "1 if the reply holds " + ", ".join(f"<{tag}>" for tag in wanted) + " in order, once each"
    return Reward(score, name=name)


think_answer_format = format_reward(name="think_answer_format")
think_format = format_reward(("think",), strict=False, reply_after=True, prompt_opens=True, name="think_format")
