"""Training sequences, read off the token spans of stored groups."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Row(NamedTuple):
    """One sequence. mask and logprobs: of all tokens; logprobs are 0 where the mask is."""

    place: int
    ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    reward: float


def rows_of(path: Path) -> list[Row]:
    """Those of a file of groups, sorted."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        group = json.loads(line)
        place = int(group["group_id"].rpartition("-")[2])
        for rollout in group["rollouts"]:
            found += [
                Row(place, *map(tuple, columns), rollout["reward"])
                for columns in _sequences(rollout["messages"])
                if any(columns[1])
            ]
    return sorted(found)


def same(found: Sequence[Row], wanted: Sequence[Row]) -> bool:
    """Are they, token for token?"""
    assert [row[:3] for row in found] == [row[:3] for row in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs)
        assert one.reward == pytest.approx(other.reward, abs=1e-5)
    return True


def _sequences(messages: list[dict[str, Any]]) -> list[tuple[list[int], list[int], list[float]]]:
    found: list[tuple[list[int], list[int], list[float]]] = [([], [], [])]
    for span in (message["tokens"] for message in messages if message.get("tokens")):
        if span.get("restart"):
            found.append(([], [], []))
        ids, mask, logprobs = found[-1]
        sampled = span["mask"] if isinstance(span["mask"], list) else [span["mask"]] * len(span["ids"])
        ids += span["ids"]
        mask += map(int, sampled)
        given = span.get("logprobs") or [0.0] * len(span["ids"])
        logprobs += [value if kept else 0.0 for value, kept in zip(given, sampled, strict=True)]
    return found
