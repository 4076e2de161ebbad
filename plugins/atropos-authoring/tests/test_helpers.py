"""Helpers and fixtures for plugin authors."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import atropos_authoring
import pytest
from atropos_authoring import make_rollout, run_environment

from atropos_cli.sdk import ConfigError, Environment, Task, user


class Echo(Environment):
    """Say it again."""

    name = "echo"
    rewards = ("exact_match",)

    def tasks(self, split):
        return [Task(id=word, prompt=(user(word),), answer=word) for word in ("one", "two", "three")]


class Unlucky(Echo):
    """Every episode but those in `good` cannot begin."""

    good = ()
    begun = 0

    def episode(self, task):
        type(self).begun += 1
        if self.begun not in self.good:
            raise OSError("no board")
        return super().episode(task)


class Empty(Echo):
    def tasks(self, split):
        return []


def test_make_rollout_from_text_and_from_messages():
    task = Task(id="t", prompt=(user("q"),))
    rollout = make_rollout("a", task=task, completion_tokens=3, number=2)
    assert (rollout.id, rollout.text, rollout.usage.completion_tokens) == ("t/2", "a", 3)
    assert [message.role for message in rollout.messages] == ["user", "assistant"]
    assert make_rollout(rollout.messages).messages == rollout.messages


def test_an_environment_runs_with_replies_in_turn(tmp_path):
    groups = run_environment(Echo, folder=tmp_path / "run", replies=["one"], limit=3, group_size=2)
    assert sorted(group.task.id for group in groups) == ["one", "three", "two"]
    rewards = {group.task.id: [rollout.reward for rollout in group.rollouts] for group in groups}
    assert rewards == {"one": [1.0, 1.0], "two": [0.0, 0.0], "three": [0.0, 0.0]}
    assert all(rollout.completion.tokens for group in groups for rollout in group.rollouts)


def test_an_environment_runs_with_a_function(tmp_path):
    groups = run_environment(Echo, folder=tmp_path / "run", replies=lambda messages: messages[-1].text, limit=3)
    assert {rollout.reward for group in groups for rollout in group.rollouts} == {1.0}


def test_failed_rollouts_are_in_the_groups(tmp_path):
    half = type("Half", (Unlucky,), {"good": (2,)})
    (group,) = run_environment(half, folder=tmp_path / "run", replies=["x"], limit=1)
    assert group.rollouts[0].failure.stage == "reset"
    assert group.rollouts[1].failure is None


def test_no_success_at_all_is_an_assertion_that_says_why(tmp_path):
    with pytest.raises(AssertionError, match="stage reset: OSError: no board"):
        run_environment(Unlucky, folder=tmp_path / "run", replies=["x"], limit=1)
    with pytest.raises(ConfigError, match="no tasks"):
        run_environment(Empty, folder=tmp_path / "run2", replies=["x"])


def test_fixture_run_uses_a_new_folder_each_time(atropos_run):
    assert (
        atropos_run(Echo, replies=["one"], limit=1)[0].group_id
        == atropos_run(Echo, replies=["one"], limit=1)[0].group_id
    )


def test_fixture_clean_hides_this_machine(monkeypatch, request):
    monkeypatch.setenv("ATROPOS_MODEL", "leak")
    folder = request.getfixturevalue("atropos_clean")
    assert "ATROPOS_MODEL" not in os.environ
    assert os.environ["HOME"] == str(folder) == os.getcwd()


def test_fixture_registry_has_the_built_in_components(atropos_registry):
    assert atropos_registry.find("reward", "exact_match").load().name == "exact_match"


def test_every_public_name_is_there():
    for name in atropos_authoring.__all__:
        assert getattr(atropos_authoring, name) is not None
    with pytest.raises(AttributeError):
        atropos_authoring.no_such_name  # noqa: B018


def test_the_pytest_plugin_costs_other_test_suites_nothing():
    code = (
        "import sys, json; before = set(sys.modules); import atropos_authoring.pytest_plugin; "
        "print(json.dumps([name for name in sys.modules if name not in before]))"
    )
    done = subprocess.run([sys.executable, "-c", "import pytest; " + code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert loaded <= {"atropos_cli", "atropos_authoring", "atropos_authoring.pytest_plugin"}
