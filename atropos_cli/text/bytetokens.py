"""Token ids and logprobs without a tokenizer, by a fixed rule, for backends and servers without a model.

One id per UTF-8 byte of the text, then END; a prompt is, for each message, the id of its role, its bytes and END, and
last the assistant's role. A prompt therefore always extends the prompt and reply before it. The ids mean nothing to
any real model.
"""

from __future__ import annotations

from collections.abc import Sequence

END = 256
ROLE_IDS = {"system": 257, "developer": 258, "user": 259, "assistant": 260, "tool": 261}


def encode_reply(text: str) -> tuple[int, ...]:
    """The ids of a reply: its UTF-8 bytes, then END."""
    return (*text.encode("utf-8"), END)


def encode_prompt(turns: Sequence[tuple[str, str]]) -> tuple[int, ...]:
    """The ids of (role, text) turns, up to and with the role of the reply to come."""
    ids: list[int] = []
    for role, text in turns:
        ids.append(ROLE_IDS.get(role, ROLE_IDS["user"]))
        ids.extend(encode_reply(text))
    ids.append(ROLE_IDS["assistant"])
    return tuple(ids)


def token_logprobs(ids: Sequence[int]) -> tuple[float, ...]:
    """The made-up log-probability of each id: between -1.01 and -0.01, by the id alone."""
    return tuple(-((token * 37) % 101 + 1) / 100 for token in ids)
