"""Counts that are made in parts and put together: an object's numbers, counters, sets and lists as JSON, and back.

    state = tally_state(report, "rows", "left_out")      in one process
    add_tally(report, state)                             in another, in the order of the parts

Numbers and counters are added, sets joined, lists put one after another; of other dictionaries the first
value of a key stays. Keys keep their type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any


def tally_state(owner: Any, *names: str) -> dict[str, Any]:
    """The attributes of these names as JSON."""
    return {name: _packed(getattr(owner, name)) for name in names}


def add_tally(owner: Any, state: Mapping[str, Any]) -> None:
    """Add the values of `tally_state` to the attributes. Raises TypeError or ValueError for others."""
    for name, value in state.items():
        own = getattr(owner, name)
        if isinstance(own, Counter):
            for key, count in value:
                own[key] += count
        elif isinstance(own, dict):
            for key, item in value:
                own.setdefault(key, item)
        elif isinstance(own, set):
            own.update(value)
        elif isinstance(own, list):
            own.extend(value)
        else:
            setattr(owner, name, own + value)


def _packed(value: Any) -> Any:
    if isinstance(value, dict):
        return [[key, item] for key, item in value.items()]
    return sorted(value) if isinstance(value, set) else value
