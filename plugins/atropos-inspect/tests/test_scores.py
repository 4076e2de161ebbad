"""What a score is as a reward, and which sources are tasks."""

from __future__ import annotations

from typing import Any

import pytest
from atropos_inspect.environment import check_source
from atropos_inspect.rewards import components, inspect_score, scorer_reward, value_of

from atropos_cli.sdk import Rollout, Score, Task, Unscored, UsageError


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("C", 1.0), ("I", 0.0), ("P", 0.5), ("N", 0.0), ("yes", 1.0), ("False", 0.0), ("0.25", 0.25), (True, 1.0),
        (-3, -3.0), (0.7, 0.7), ("c", None), ("maybe", None), ("nan", None), (float("inf"), None), (None, None),
        ({"a": "C", "b": 0}, 0.5), ({"a": "C", "b": "text"}, 1.0), ([1, 0, 0, 1], 0.5), ({}, None), ([], None),
    ],
)  # fmt: skip
def test_a_score_is_a_number(value: Any, number: float | None) -> None:
    assert value_of(value) == number


def rollout(**scores: Any) -> Rollout:
    given = {name: {"value": value} for name, value in scores.items()}
    return Rollout(id="r", task_id="t", messages=(), info={"scores": given})


def test_rewards_have_the_names_of_scorers() -> None:
    made = rollout(first="P", second={"a": 1, "b": "I"})
    task = Task(id="t")
    assert inspect_score(task, made) == 0.5
    found = scorer_reward("second", 0.0)(task, made)
    assert isinstance(found, Score)
    assert (float(found), found.metrics) == (0.5, {"second.a": 1.0, "second.b": 0.0})
    assert (scorer_reward("second", 0.0).name, scorer_reward("second", 0.0).weight) == ("second", 0.0)
    assert components("C") == {}


@pytest.mark.parametrize("scores", [{}, {"other": "C"}, {"first": "some text"}, {"first": {}}])
def test_a_score_that_is_missing_is_no_zero(scores: dict[str, Any]) -> None:
    with pytest.raises(Unscored):
        scorer_reward("first", 1.0)(Task(id="t"), rollout(**scores))


@pytest.mark.parametrize("text", ["inspect_evals/agieval", "pkg/sub/task"])
def test_a_task_of_a_package_is_a_source(text: str) -> None:
    assert check_source(text) == text


@pytest.mark.parametrize("text", ["task", "./nowhere.py@x", "file.py", "a b/c", "/abs/file.py"])
def test_other_texts_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        check_source(text)
