"""Curricula and adaptive groups: what is chosen, what is kept, and how many rollouts that costs."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import Adding, Bench, say

from atropos_cli.domain.selection import Selection
from atropos_cli.errors import DataError, UsageError
from atropos_cli.rollout.curriculum import FILE, Curriculum, Pool
from atropos_cli.sdk import Task, TaskStream, user
from atropos_cli.sdk.backends import GenerateRequest, Generation

RATES = {"easy": 1.0, "right": 0.5, "hard": 0.0}


def task(index: int) -> Task:
    kind = list(RATES)[index % 3]
    return Task(id=f"{kind}-{index}", prompt=(user(f"{kind} {index}"),), answer="yes", info={"level": kind})


class Levels(Adding):
    name = "levels"

    def tasks(self, split: str) -> TaskStream:
        return TaskStream(task)


def answer(request: GenerateRequest) -> Generation:
    """Right as often as the kind says; the same for the same seed."""
    kind = request.messages[-1].text.split()[0]
    rng = random.Random(f"{request.messages[-1].text}/{request.seed}")
    return say("yes" if rng.random() < RATES[kind] else "no")


@pytest.fixture
def levels(bench: Bench) -> Bench:
    bench.use(Levels)
    bench.backend.answer = staticmethod(answer)
    return bench


def curriculum(folder: Path | None, *, length: int | None = None, cycle: str | None = None, **more: Any) -> Curriculum:
    choice = Selection(curriculum="level", curriculum_window=6, **more)
    pool = Pool("levels", TaskStream(task, length), choice, most=None, cycle=cycle, accept=lambda one: True)
    return Curriculum([pool], [1.0], choice, seed=1, folder=folder)


def play(found: Curriculum, count: int) -> list[int]:
    places = []
    for index in range(count):
        assert found.ready(index)
        pick = found.pick(index)
        if pick is None:
            break
        places.append(pick[1])
        found.outcome(index, RATES[task(pick[1]).info["level"]])  # type: ignore[index]
    return places


def kinds(places: list[int]) -> Counter[str]:
    return Counter(str(task(place).info["level"]) for place in places)


def test_what_is_solved_half_of_the_time_comes_more_often() -> None:
    places = play(curriculum(None), 120)
    assert kinds(places[:6]) == {"easy": 2, "right": 2, "hard": 2}
    late = kinds(places[60:])
    assert late["right"] > 50
    assert min(late.values()) >= 1  # the others are looked at now and then
    assert len(set(places)) == 120  # no task twice


def test_another_target_is_another_choice() -> None:
    late = kinds(play(curriculum(None, curriculum_target=0.9), 120)[60:])
    assert late["easy"] > late["right"] > late["hard"]


def test_hard_tasks_come_again_three_times_at_most() -> None:
    places = Counter(play(curriculum(None, curriculum_replay=0.4), 300))
    again = {place: count for place, count in places.items() if count > 1}
    assert {str(task(place).info["level"]) for place in again} == {"hard"}
    assert max(again.values()) <= 4
    assert sum(count - 1 for count in again.values()) > 20


def test_a_finite_set_ends_and_in_a_training_starts_again() -> None:
    assert sorted(play(curriculum(None, length=20), 50)) == list(range(20))
    places = play(curriculum(None, length=20, cycle="1"), 60)
    assert len(places) == 60
    assert set(places) <= set(range(20))


def test_a_round_waits_for_the_results_before_the_last_one() -> None:
    found = curriculum(None)
    for index in range(12):
        assert found.ready(index)
        found.pick(index)
    assert not found.ready(12)
    for index in range(5):
        found.outcome(index, 1.0)
    assert not found.ready(12)
    found.outcome(5, None)  # nothing came of it
    assert found.ready(12)


def test_the_choices_of_the_file_are_repeated(tmp_path: Path) -> None:
    whole = play(curriculum(None, curriculum_replay=0.3), 80)
    first = curriculum(tmp_path, curriculum_replay=0.3)
    play(first, 33)
    first.close()
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"task": 3')  # killed while it was writing
    again = curriculum(tmp_path, curriculum_replay=0.3)
    assert again.decided == 36
    places = []
    for index in range(80):
        pick = again.pick(index)
        assert pick is not None
        places.append(pick[1])
        if index >= 33:
            again.outcome(index, RATES[task(pick[1]).info["level"]])  # type: ignore[index]
    assert places == whole


def test_other_tasks_than_those_of_the_file(tmp_path: Path) -> None:
    first = curriculum(tmp_path)
    play(first, 20)
    first.close()
    rows = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    next(row for row in rows if row.get("round") == 1)["picks"][0] = [0, 999]
    (tmp_path / FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="not those that the run began with"):
        curriculum(tmp_path)


@pytest.mark.parametrize("line", ["nonsense", '{"task": "x", "success": 1}', '{"task": 1, "success": "a"}', "[]"])
def test_a_damaged_file(tmp_path: Path, line: str) -> None:
    (tmp_path / FILE).write_text(line + "\n")
    with pytest.raises(DataError, match=FILE):
        curriculum(tmp_path)


def test_a_run_keeps_its_curriculum(levels: Bench) -> None:
    choice = Selection(curriculum="level", curriculum_window=8)
    levels.run(levels.plan(limit=96, group_size=4, selection=choice))
    rows = levels.groups()
    late = Counter(row["task"]["info"]["level"] for row in rows if int(row["group_id"].rpartition("-")[2]) >= 48)
    assert late["right"] > late["easy"] + late["hard"]
    log = [json.loads(line) for line in (levels.folder / FILE).read_text().splitlines()]
    assert len([row for row in log if "round" in row]) == 12
    assert {row["task"] for row in log if "task" in row} == set(range(96))


def test_a_key_that_no_task_has(levels: Bench) -> None:
    with pytest.raises(UsageError, match="no task has 'nosuch' in its info") as failed:
        levels.run(levels.plan(selection=Selection(curriculum="nosuch")))
    assert "level" in str(failed.value.hint)
    assert not (levels.folder / "plan.json").exists()


def test_decided_groups_are_cut_short_and_further_tasks_get_the_rest(levels: Bench) -> None:
    summary = levels.run(levels.plan(limit=60, group_size=8, selection=Selection(adaptive=True)))
    sizes = Counter((row["task"]["info"]["level"], len(row["rollouts"])) for row in levels.groups())
    assert sizes.keys() >= {("easy", 4), ("hard", 4), ("right", 8)}
    assert not {("easy", 8), ("hard", 8)} & sizes.keys()
    assert 60 * 8 - 8 < summary.rollouts <= 60 * 8
    assert summary.groups_done > 75
    plain = levels.run(levels.plan(limit=60, group_size=8), overwrite=True)
    assert summary.useful_per_1000 > plain.useful_per_1000 > 0  # type: ignore[operator]


def test_an_adaptive_run_that_is_resumed_ends_where_a_whole_one_does(levels: Bench) -> None:
    plan = levels.plan(limit=40, group_size=4, selection=Selection(adaptive=True))
    whole = levels.run(plan)
    rows = {row["group_id"]: row["task"]["id"] for row in levels.groups()}
    lines = (levels.folder / "groups.jsonl").read_bytes().splitlines(keepends=True)
    for path in levels.folder.glob("*"):
        if path.name not in ("plan.json", "groups.jsonl"):
            path.unlink()
    (levels.folder / "groups.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    again = levels.run(plan, resume=True)
    assert again.rollouts == whole.rollouts
    assert {row["group_id"]: row["task"]["id"] for row in levels.groups()} == rows


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"selection": Selection(adaptive=True), "group_size": 2}, "groups of 4"),
        ({"selection": Selection(adaptive=True), "group_size": 8, "execution": {"shard": "0/2"}}, "--adaptive goes by"),
        ({"selection": Selection(curriculum="level"), "execution": {"shard": "0/2"}}, "--curriculum goes by"),
        ({"selection": Selection(curriculum_window=3)}, "needs --curriculum KEY"),
    ],
)
def test_what_does_not_go_together(levels: Bench, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        levels.plan(**settings)
