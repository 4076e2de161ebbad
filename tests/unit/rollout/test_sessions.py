"""Counts over the sessions of a run: stored and read back, with a writer of a plugin, and when a signal comes first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support import Bench

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.rollout import Rollout, RolloutFailure, Usage
from atropos_cli.domain.task import Task
from atropos_cli.io.groupfile import GroupFile
from atropos_cli.io.lost import RunFacts
from atropos_cli.ports.writer import Writer
from atropos_cli.rollout.sessions import RunTotals, Sessions, recover, stored_sessions
from atropos_cli.rollout.totals import Totals


def group(index: int, *rewards: float | None, **metrics: float) -> ScoredGroup:
    rollouts = tuple(
        Rollout(
            id=f"r/{i}", task_id=str(index), messages=(), reward=reward, metrics=metrics, stop_reason="length",
            rewards={} if reward is None else {"one": reward}, usage=Usage(prompt_tokens=2, completion_tokens=i),
            failure=RolloutFailure(stage="score", type="Odd: one", message="") if reward is None else None,
        )
        for i, reward in enumerate(rewards)
    )  # fmt: skip
    return ScoredGroup(group_id=f"abcdefabcd-{index}", env="e", task=Task(id=str(index)), rollouts=rollouts, model="m")


GROUPS = [group(0, 1.0, 0.25), group(1, None, -3.5), group(2), group(3, 1e-300, 1e300, m=0.1), group(4, 0.1, 0.1)]


@pytest.mark.parametrize("count", range(len(GROUPS) + 1))
def test_totals_go_on_exactly_where_they_were_stored(count: int) -> None:
    whole, first = Totals(), Totals()
    for index, one in enumerate(GROUPS):
        whole.write(index, [one])
        if index < count:
            first.write(index, [one])
    again = Totals.from_state(json.loads(json.dumps(first.state())))
    for index, one in enumerate(GROUPS[count:], count):
        again.write(index, [one])
    assert again.fields() == whole.fields()
    again.lose(9, ["a:b", "a:b", "c:d"])
    again.lose(9, ["c:d"])
    assert (again.rollouts, again.failed["c:d"], again.failed["a:b"]) == (whole.rollouts + 1, 1, 0)
    again.write(9, [])
    assert again.fields() == whole.fields()


class Memory(Writer):
    """Keeps groups in no file that can be read here."""

    name = "memory"
    groups: ClassVar[dict[int, Any]] = {}

    def open(self, folder: Path | None, *, prefix: str, fsync: str = "interval") -> Iterator[int]:
        return iter(list(self.groups))

    def write(self, groups: tuple[ScoredGroup, ...]) -> None:
        self.groups[int(groups[-1].group_id.rpartition("-")[2])] = groups

    def close(self) -> None:
        return None


def test_a_writer_whose_file_cannot_be_read_is_counted_by_what_was_stored(tmp_path: Path) -> None:
    Memory.groups.clear()
    bench = Bench(tmp_path / "run")
    bench.registry.components["writer", "memory"] = Memory

    def plan(limit: int) -> Plan:
        made = bench.plan(limit=limit)
        return made.replace(writer=made.writer.replace(name="memory"))

    assert bench.run(plan(3)).rollouts == 6
    more = bench.run(plan(5), resume=True)
    assert (more.groups_done, more.rollouts, more.groups_resumed) == (5, 10, 3)
    (bench.folder / "totals.json").unlink()
    left_out = bench.run(plan(6), resume=True)
    assert (left_out.groups_done, left_out.rollouts) == (6, 2)
    assert "leaves out 5 groups of earlier sessions" in (bench.folder / "log.jsonl").read_text()
    assert not (bench.folder / "totals.json").exists(), "what is not of the whole run is not stored as if it were"


def test_a_signal_ends_the_counting(tmp_path: Path) -> None:
    file = GroupFile(tmp_path / "groups.jsonl", prefix="abcdefabcd")
    list(file.recover())
    for one in GROUPS:
        file.write((one,))
    file.close()
    facts = RunFacts("e", 2, "abcdefabcd")
    found = recover(tmp_path, "groups.jsonl", facts, 5, lambda index: index < 5)
    assert (found.totals.tasks, found.totals.rollouts) == (5, 8)
    calls = iter([False, False, True])
    with pytest.raises(InterruptedError):
        recover(tmp_path, "groups.jsonl", facts, 5, lambda index: True, lambda: next(calls))


def test_sessions_add_up(tmp_path: Path) -> None:
    one = Sessions(3, 1, 0.5, 8, 10.0, {"judge": {"judged": 2}})
    run = RunTotals(tmp_path, None, "x", Totals(), one)
    run.save(Sessions(2, 0, 0.25, 4, 1.5, {"judge": {"judged": 1, "split": 1}, "other": {"n": 1}}))
    assert stored_sessions(tmp_path) == Sessions(
        5, 1, 0.75, 8, 11.5, {"judge": {"judged": 3, "split": 1}, "other": {"n": 1}}
    )
    (tmp_path / "totals.json").write_text('{"sessions": {"requests": "many"}}')
    assert stored_sessions(tmp_path) == Sessions()
    (tmp_path / "summary.json").write_text('{"requests": 7, "seconds": 2.5, "state": "finished"}')
    assert stored_sessions(tmp_path) == Sessions(requests=7, seconds=2.5)
