"""The set of done tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atropos_cli.rollout.resume import DoneTasks


@given(st.lists(st.integers(0, 300)), st.integers(0, 320))
def test_it_is_a_set_with_a_next_open_index(indexes: list[int], start: int) -> None:
    done = DoneTasks()
    news = [done.add(index) for index in indexes]
    assert done.count == len(set(indexes)) == sum(news)
    assert all(index in done for index in indexes)
    expected = next(i for i in range(start, 1000) if i not in set(indexes))
    assert done.next_open(start) == expected
    assert expected not in done


def test_a_million_tasks_fit_in_a_few_hundred_kilobytes() -> None:
    done = DoneTasks()
    for index in range(1_000_000):
        done.add(index)
    assert len(done._bits) < 300_000
    assert done.next_open(0) == 1_000_000
