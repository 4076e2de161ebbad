"""Tasks of which nothing was written: what lines of failures.jsonl make a task lost, whoever wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.io.lost import LostGroups, RunFacts, lost_tasks, run_facts
from atropos_cli.io.readers import ReadLog, ReadOptions, read_records
from atropos_cli.io.sources import find_sources

SIZE = 3


def line(task: int, rollout: int | None, session: int = 1, **more: Any) -> dict[str, Any]:
    group = f"abcdefabcd-{task}"
    number = None if rollout is None else f"{group}/{rollout}"
    made = {"group_id": group, "task_id": f"t{task}", "rollout": number, "stage": "generate", "type": "Timeout"}
    return {**{k: v for k, v in made.items() if v is not None}, "message": "late", "attempt": session, **more}


def whole(task: int, session: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [line(task, rollout, session, **more) for rollout in range(SIZE)]


def write(run: Path, *rows: Any, torn: bytes = b"") -> Path:
    run.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    (run / "failures.jsonl").write_bytes(b"".join(row + b"\n" for row in lines) + torn)
    return run


def lost(run: Path, written: frozenset[int] = frozenset(), prefix: str | None = "abcdefabcd") -> dict[int, list[str]]:
    found = lost_tasks(run, RunFacts("e", SIZE, prefix), written.__contains__)
    return {task.index: task.kinds for task in found}


TIMEOUTS = ["generate:Timeout"] * SIZE


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        (whole(4), {4: TIMEOUTS}),
        ([line(4, None)], {4: TIMEOUTS}),
        ([line(4, None), line(4, None, 2)], {4: TIMEOUTS}),
        (whole(4)[:2], {}),  # interrupted: no group followed
        ([line(4, 0, lost=True)], {4: TIMEOUTS[:1]}),  # a smaller group than usual
        ([*whole(4), *whole(4, 2, stage="score", type="Odd")], {4: ["score:Odd"] * SIZE}),
        ([*whole(4), *whole(4, 2)[:1]], {4: TIMEOUTS}),  # tried again, interrupted
        ([line(4, None), *whole(4, 1, type="Later")], {4: ["generate:Later"] * SIZE}),
        ([{**row, "group_id": row["group_id"] + ".7"} for row in whole(4)], {4: TIMEOUTS}),  # the turn it ended in
        ([*whole(1), *whole(0), *whole(2)[:2]], {0: TIMEOUTS, 1: TIMEOUTS}),
        ([b'{"group_id": "abcdefabcd-4", "rollout": ["x"]}', *whole(4)], {4: TIMEOUTS}),
        ([b"[1]", b"null", b'"x"', b"{", b"\xff", b"[" * 5000, *whole(4)], {4: TIMEOUTS}),
        ([{**row, "group_id": "ffffffffff-4"} for row in whole(4)], {}),  # another plan's
        ([{**row, "group_id": f"abcdefabcd-{10**18}"} for row in whole(4)], {10**18: TIMEOUTS}),
        ([{**row, "group_id": "abcdefabcd--4"} for row in whole(4)], {}),
    ],
)
def test_a_task_is_lost_when_all_of_its_last_session_failed(tmp_path: Path, rows: Any, want: dict[int, Any]) -> None:
    run = write(tmp_path / "run", *rows, torn=b'{"group_id": "abcdefabcd-9", "rol')
    assert lost(run) == want
    assert lost(run, frozenset({4})) == {index: kinds for index, kinds in want.items() if index != 4}


def test_failures_of_the_ranks_are_read_too(tmp_path: Path) -> None:
    run = write(tmp_path / "run", *whole(0))
    write(run / "ranks" / "1", *whole(1), *whole(2)[:2])
    write(run / "ranks" / "2", *whole(2))
    assert lost(run) == {0: TIMEOUTS, 1: TIMEOUTS, 2: TIMEOUTS}


@pytest.mark.parametrize(
    "plan",
    [b"", b"[]", b"{}", b'{"environment": 3, "group_size": 2}', b'{"environment": {"name": "e"}, "group_size": 1e99}',
     b'{"environment": {"name": "e"}, "group_size": 3, "rewards": [1]}', b"[" * 5000],
)  # fmt: skip
def test_a_folder_whose_plan_says_nothing_has_no_lost_tasks(tmp_path: Path, plan: bytes) -> None:
    run = write(tmp_path / "run", *whole(0))
    (run / "plan.json").write_bytes(plan)
    (run / "groups.jsonl").write_bytes(b"")
    assert run_facts(run) is None
    assert list(LostGroups(find_sources([str(run)])).remaining()) == []


def test_records_take_out_what_was_written_and_name_the_environment(tmp_path: Path) -> None:
    run = write(tmp_path / "run", *whole(0), *whole(1), *whole(2))
    plan = {"digest": "abcdefabcd0123", "environment": {"name": "/some/where.py:Sums"}, "group_size": SIZE}
    (run / "plan.json").write_text(json.dumps({**plan, "rewards": [{"weight": 2}, {"weight": -1}]}))
    rollout = {"id": "x", "task_id": "t", "messages": [], "reward": 1.0}
    group = {"env": "sums", "task": {"id": "t1"}, "rollouts": [rollout], "model": "m"}
    (run / "groups.jsonl").write_text(json.dumps({"group_id": "abcdefabcd-1", **group}) + "\n")
    sources = find_sources([str(run)])
    groups = LostGroups(sources)
    for record in read_records(sources, ReadOptions(), ReadLog()):
        groups.seen(record)
    found = list(groups.remaining())
    assert [(record.id, record.task_id, record.env) for record in found] == [
        ("abcdefabcd-0", "t0", "sums"), ("abcdefabcd-2", "t2", "sums"),
    ]  # fmt: skip
    assert all(rollout.failure is not None and rollout.score is None for rollout in found[0].rollouts)
    facts = groups.facts(str(run / "groups.jsonl"))
    assert facts is not None
    assert facts.full_marks == 2.0
