"""Where the groups of a step come from: passes over stored groups and tasks, and where a resumed run continues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

from atropos_trl.native.crew import Crew
from atropos_trl.native.supply import Supply


class Numbers:
    """A context whose groups are numbers."""

    tasks = 5

    def groups(self) -> Iterator[int]:
        yield from range(5)

    def roll(self, places: Sequence[int], *, step: int) -> list[list[int]]:
        return [[place % 5] for place in places]


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("taken", [0, 3, 7])
def test_passes_end_and_a_resumed_run_continues(live: bool, taken: int) -> None:
    context: Any = Numbers()
    supply = Supply(context, Crew(), live=live, size=2, taken=taken, passes=2)
    found: list[Any] = []
    while groups := supply.next(0):
        found += groups
    assert found == [*range(5), *range(5)][taken:]


@pytest.mark.parametrize("live", [True, False])
def test_without_passes_there_is_no_end(live: bool) -> None:
    context: Any = Numbers()
    supply = Supply(context, Crew(), live=live, size=4, taken=11, passes=None)
    assert [group for _ in range(3) for group in supply.next(0)] == [(11 + number) % 5 for number in range(12)]
