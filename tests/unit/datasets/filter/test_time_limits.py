"""Foreign patterns and templates that would run for ever are stopped, in words; ordinary ones are not disturbed."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from atropos_cli import timelimit
from atropos_cli.datasets.convert.template import ChatTemplate
from atropos_cli.datasets.filter.expressions import Expression, searcher
from atropos_cli.errors import ConfigError, UsageError
from atropos_cli.io.records import Record, StoredRollout
from atropos_cli.timelimit import OverTime, time_limit


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelimit, "LIMIT", 0.3)
    monkeypatch.setattr(timelimit, "_TICK", 0.1)


def scope(text: str) -> tuple[Record, StoredRollout]:
    rollout = StoredRollout(messages=[{"role": "assistant", "content": text}], score=1.0, raw={})
    return Record(id="r", raw={}, format="native", rollouts=[rollout]), rollout


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(a+)+$", "a" * 40 + "b"),
        (r"^(\w+\s?)*$", "слово " * 12 + "!"),
        (r"(?:答|答)*案", "答" * 60),
        (r"(.*)(.*)(.*)(.*)(.*)z", "x" * 2000),
        (r"(?=(a+)+b)", "a" * 40),
    ],
)
def test_a_pattern_that_runs_away_is_stopped(pattern: str, text: str) -> None:
    began = time.process_time()
    with pytest.raises(UsageError, match="took longer than"):
        searcher(pattern)(text)
    assert time.process_time() - began < 8


@pytest.mark.parametrize("expression", ["match('(a+)+$', text)", "match(info.p, text)", "not match('(a|aa)+$', text)"])
def test_an_expression_with_such_a_pattern_ends_the_command(expression: str) -> None:
    record, rollout = scope("a" * 50 + "b")
    record.info = {"p": "(a*)*$"}
    with pytest.raises(UsageError, match="took longer than"):
        Expression(expression)(record, rollout)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
    ],
)
def test_a_template_that_runs_away_is_stopped(source: str) -> None:
    with pytest.raises(ConfigError, match="took longer than"):
        ChatTemplate(source).render([{"role": "user", "content": "hi"}])


def test_ordinary_work_goes_on_and_the_clock_stops_by_itself() -> None:
    def busy(seconds: float) -> None:
        """Seldom looks at the clock: the time a look takes in the kernel is none that the timer counts."""
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            sum(range(20_000))

    find = searcher("b+")
    for _ in range(2000):
        assert find("aabb")
    with time_limit(), time_limit():
        busy(0.2)
    state: Any = time_limit
    for _ in range(20):  # outside of a limit nothing is counted, and a tick or two later the clock is off
        busy(0.2)
        if not state._ticking:
            break
    assert not state._ticking
    with pytest.raises(OverTime), time_limit():
        busy(3)


def test_in_another_thread_python_code_is_stopped_by_who_looks() -> None:
    ended: list[str] = []

    def run() -> None:
        try:
            with time_limit():
                while True:
                    pass
        except OverTime as error:
            ended.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    for _ in range(100):
        timelimit.look_at_threads()
        thread.join(0.1)
        if not thread.is_alive():
            break
    assert ended == [f"not done after {timelimit.LIMIT:g} s"]
