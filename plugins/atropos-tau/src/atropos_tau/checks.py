"""Checks of texts and states, for both sides of the process: it imports nothing but the standard library."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

STOP, TRANSFER, OUT_OF_SCOPE = "###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"
STOPS = (STOP, TRANSFER, OUT_OF_SCOPE)
"""A message of the user that contains one of these ends the conversation."""


def state_text(value: Any) -> str:
    """A state as text: equal for equal states, whatever the order of keys. 1 and 1.0 are different, as in tau2."""
    return json.dumps(value, sort_keys=True, default=str)


def communicated(fact: str, texts: Iterable[str]) -> bool:
    """Is the fact in one of the texts? Case and commas do not count; "10" is found in "100", as in tau2."""
    wanted = fact.lower().replace(",", "")
    return any(wanted in text.lower().replace(",", "") for text in texts)


def reward_of(basis: Sequence[str], met: Mapping[str, bool], *, done: bool) -> float:
    """tau2's reward: 1 when the conversation came to its end and all that the task is based on is met, else 0."""
    return float(done and all(met[name] for name in basis))
