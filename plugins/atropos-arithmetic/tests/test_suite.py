"""The fixed suite: stored, checked, and the same as it was drawn."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from importlib import resources

import pytest
from atropos_arithmetic import suite
from atropos_arithmetic.suite import ArithmeticEval, SuiteConfig
from atropos_authoring import EnvironmentContract

from atropos_cli.errors import ConfigError


class TestArithmeticEval(EnvironmentContract):
    environment = ArithmeticEval
    split = "test"
    replies = ("Answer: 7", "Answer: 12")


def test_the_stored_problems_are_the_drawn_ones() -> None:
    data = resources.files("atropos_arithmetic").joinpath("arithmetic_eval.jsonl").read_bytes()
    assert hashlib.sha256(data).hexdigest() == suite.SHA256
    assert [json.loads(line) for line in data.splitlines()] == list(suite.draw())


def test_two_hundred_problems_of_all_kinds_and_levels() -> None:
    tasks = ArithmeticEval(SuiteConfig()).tasks("test")
    assert len({task.id for task in tasks}) == len({task.prompt for task in tasks}) == 200
    assert set(Counter(task.info["difficulty"] for task in tasks).values()) == {40}
    assert len(Counter(task.info["kind"] for task in tasks)) == 6


def test_a_changed_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "SHA256", "0" * 64)
    with pytest.raises(ConfigError, match="were changed"):
        ArithmeticEval(SuiteConfig()).tasks("test")
