"""Which game a task is: seeded, the same everywhere, disjoint between splits."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from atropos_textworld.config import TextWorldConfig
from atropos_textworld.drawing import draw
from atropos_textworld.environment import TextWorldEnvironment
from atropos_textworld.games import registry
from pydantic import ValidationError

from atropos_cli.sdk import ConfigError, Task


def specs(count: int = 400, split: str = "train", **options: object) -> list[object]:
    config = TextWorldConfig(**options)  # type: ignore[arg-type]
    return [draw(config, split, index) for index in range(count)]


def test_no_game_is_in_two_splits_or_twice_in_one() -> None:
    seeds = {split: [spec.seed for spec in specs(2000, split)] for split in ("train", "valid", "test")}  # type: ignore[attr-defined]
    assert all(len(set(found)) == 2000 for found in seeds.values())
    for game_seed in (1, 2):
        for split in seeds:
            seeds[split] += [s.seed for s in specs(500, split, game_seed=game_seed)]  # type: ignore[attr-defined]
    train, valid, test = map(set, seeds.values())
    assert not train & valid
    assert not train & test
    assert not valid & test


def test_the_mix_is_as_asked_for() -> None:
    origins = Counter(registry.kinds()[spec.kind].origin for spec in specs(2000))  # type: ignore[attr-defined]
    assert 0.66 < origins["generated"] / 2000 < 0.74
    kinds = Counter(spec.kind for spec in specs(4000))  # type: ignore[attr-defined]
    assert set(kinds) == set(registry.kinds())
    only = {registry.kinds()[s.kind].origin for s in specs(registry_mode="challenge")}  # type: ignore[attr-defined]
    assert only == {"challenge"}
    only = {registry.kinds()[s.kind].origin for s in specs(registry_mode="generated")}  # type: ignore[attr-defined]
    assert only == {"generated"}


def test_difficulty_and_type_filter() -> None:
    assert {s.difficulty for s in specs(difficulty="hard")} == {"hard"}  # type: ignore[attr-defined]
    assert len({s.difficulty for s in specs()}) == 4  # type: ignore[attr-defined]
    assert {s.kind for s in specs(game_type="quest-fetch")} == {"quest-fetch"}  # type: ignore[attr-defined]
    assert {s.kind for s in specs(game_type="tw-simple")} == {"tw-simple"}  # type: ignore[attr-defined]
    assert len({s.kind for s in specs(game_type="puzzle")}) == 5  # type: ignore[attr-defined]
    assert len({s.kind for s in specs(game_type="challenge")}) == 4  # type: ignore[attr-defined]


def test_another_game_seed_gives_other_games() -> None:
    assert not set(specs(100)) & set(specs(100, game_seed=1))


def test_a_type_that_does_not_exist_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValidationError, match="did you mean"):
        TextWorldConfig(game_type="quest-fetc")


def test_tasks_are_the_same_in_any_process() -> None:
    program = (
        "from atropos_textworld.environment import TextWorldEnvironment as E\n"
        "tasks = E(E.Config()).tasks('test')\n"
        "print([tasks[i].model_dump_json() for i in (0, 5, 1000)])"
    )
    expected = None
    for seed in ("0", "1", "random"):
        done = subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        expected = expected or done.stdout
        assert done.stdout == expected
    tasks = TextWorldEnvironment(TextWorldConfig()).tasks("test")
    assert tasks[5].model_dump_json() in expected


def test_making_tasks_imports_no_engine() -> None:
    program = (
        "import sys, atropos_textworld.plugin\n"
        "from atropos_textworld.environment import TextWorldEnvironment as E\n"
        "E(E.Config()).tasks('train')[3]\n"
        "print([m for m in ('textworld', 'jericho', 'numpy', 'spacy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_split_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="no split 'dev'"):
        TextWorldEnvironment(TextWorldConfig()).tasks("dev")


def test_tasks_are_plain_and_endless() -> None:
    tasks = TextWorldEnvironment(TextWorldConfig(difficulty="easy")).tasks("valid")
    assert tasks.length is None
    task = tasks[12345]
    assert task.id == f"{task.info['kind']}-easy-{task.info['seed']}"
    assert Task.model_validate_json(task.model_dump_json()) == task
    assert "plan" not in task.info
