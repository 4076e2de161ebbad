"""Mistakes that a first plugin makes: the error names the class and the field, and what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

GOOD = """
from atropos_cli.sdk import Config, Environment, Episode, Field, Task, group_reward, reward, user


@reward
def right(task, rollout):
    return float(task.answer in rollout.text)


class Demo(Environment):
    name = "demo"
    rewards = (right,)

    def tasks(self, split):
        return [Task(id=str(i), prompt=(user("hi"),), answer="h") for i in range(3)]
"""
EPISODE = """
    def episode(self, task):
        return Play()


class Play(Episode):
    def reset(self):
        return [user("hello")]

    def step(self, reply):
        return None
"""


def play(cli: Any, text: str) -> Any:
    Path("demo.py").write_text(text)
    return cli("gen", "./demo.py:Demo", "--backend", "scripted", "--backend.replies", "h", "--limit", "2", "-o", "-")


def test_the_plugin_without_a_mistake_runs(cli: Any) -> None:
    assert play(cli, GOOD).code == 0
    assert play(cli, GOOD + EPISODE).code == 0


CLASS = [
    ("@reward\n", "", "class Demo: rewards[0] is function right, not a reward", "write @reward above def right"),
    ("(right,)", "right", "class Demo: rewards is Reward right, not a tuple of rewards", "rewards = (right,)"),
    ("(right,)", '"exact"', "class Demo: rewards is str 'exact', not a tuple of rewards", "rewards = ('exact',)"),
    ("(task, rollout)", "(rollout)", "reward 'right': right(rollout) is called with", "def right(task, rollout): ..."),
    ("    name = ", "    title = ", "class Demo has no name", "add name = 'demo' to the class"),
    ("def tasks", "def task", "class Demo does not define tasks()", None),
    (
        "tasks(self, split)",
        "tasks(self)",
        "class Demo: tasks(self) is called with (self, split)",
        "def tasks(self, split)",
    ),
    ("    name = ", "    splits = 'train'\n    name = ", "class Demo: splits is 'train', not a tuple", "('train',)"),
    ("    name = ", "    roles = 'user'\n    name = ", "class Demo: roles is 'user', not a tuple", "('user',)"),
    (
        "    name = ",
        "    roles = {'user': {}}\n    name = ",
        "class Demo: roles is {'user': {}}, not a tuple",
        "= ('user',)",
    ),
    (
        "    name = ",
        "    class Config:\n        size = 1\n\n    name = ",
        "class Demo: Config is class Config, which is not a model of options",
        "class Config(atropos_cli.sdk.Config)",
    ),
    (
        "    name = ",
        "    def __init__(self):\n        self.words = []\n\n    name = ",
        "class Demo: __init__(self) takes no options",
        "def __init__(self, config): super().__init__(config)",
    ),
    ("return [Task", "[Task", "Demo.tasks() returned nothing, not tasks", "return a list of Task"),
    ("Task(id=str(i)", "dict(id=str(i)", "Demo.tasks() gave dict {'id': '0'", 'Task(id="1"'),
]


@pytest.mark.parametrize(("old", "new", "said", "hint"), CLASS, ids=[row[2][:60] for row in CLASS])
def test_a_class_of_the_wrong_shape(cli: Any, old: str, new: str, said: str, hint: str | None) -> None:
    assert old in GOOD
    done = play(cli, GOOD.replace(old, new, 1))
    assert done.code == 4
    assert said in done.stderr
    assert hint is None or hint in done.stderr.partition("hint: ")[2]
    assert "Traceback" not in done.stderr


TASK = [
    ("id=str(i)", "id=i", "Task.id: expected text, got 0", "id=str(number)"),
    ('prompt=(user("hi"),)', 'prompt="hi"', "Task.prompt: expected a list, got 'hi'", 'prompt=(user("..."),)'),
    ('prompt=(user("hi"),)', 'prompt=user("hi")', "prompt.0: expected keys and values", 'prompt=(user("..."),)'),
    ('answer="h"', "answer={1}", "Task.answer: input was not a valid JSON value, got {1}", "a JSON value"),
    ('answer="h"', 'gold="h"', "Task.gold: extra inputs are not permitted", None),
]


@pytest.mark.parametrize(("old", "new", "said", "hint"), TASK, ids=[row[1] for row in TASK])
def test_a_task_of_the_wrong_shape(cli: Any, old: str, new: str, said: str, hint: str | None) -> None:
    done = play(cli, GOOD.replace(old, new, 1))
    assert done.code == 3
    assert said in done.stderr
    assert hint is None or hint in done.stderr.partition("hint: ")[2]


RETURNED = [
    ("float(task.answer in rollout.text)", "None", "reward right: it returned nothing: return a number", "demo.py:5"),
    ("@reward\n", "@group_reward\n", "it returned float 1.0, not a list with a number for each rollout", "demo.py:5"),
    ("return Play()", "return Play", "Demo.episode() returned class Play, not an Episode object", "demo.py"),
    ('[user("hello")]', '"hello"', "Play.reset() returned str 'hello', not a list of messages", "demo.py"),
    ('[user("hello")]', 'user("hello")', "Play.reset() returned Message", "demo.py"),
    ("        return None\n", '        return "more"\n', "Play.step() returned str 'more'", "demo.py"),
    ("        return Play()", "        return self.config.x", "does not call super().__init__(config)", "demo.py"),
]


@pytest.mark.parametrize(("old", "new", "said", "place"), RETURNED, ids=[row[2][:60] for row in RETURNED])
def test_a_method_that_returns_the_wrong_thing(cli: Any, old: str, new: str, said: str, place: str) -> None:
    text = GOOD + EPISODE
    if "super" in said:
        text = text.replace("    name = ", "    def __init__(self, config):\n        self.x = 1\n\n    name = ", 1)
    if "group_reward" in new:
        text = text.replace("rollout.text", '"h"')
    assert old in text
    done = play(cli, text.replace(old, new, 1))
    assert done.code == 1
    assert said in done.stderr
    assert place in done.stderr


IMPORTS = """
from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.console.commands import with_flags


"""
HELLO = "@with_flags('hello', HelloOptions)\ndef hello(*, options: HelloOptions): ...\n"
COMMAND = [
    ("hello = 5", "neither a typer.Typer nor a function: int 5"),
    ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
    (f"{IMPORTS}class HelloOptions(CommandOptions):\n    loud = option(False, 'Loud.')\n", "Field 'loud'"),
    (
        f"{IMPORTS}class HelloOptions(CommandOptions):\n    json: bool = option(False, 'As JSON.')\n\n\n{HELLO}",
        "HelloOptions.json: every command has --json; choose another name",
    ),
]


@pytest.mark.filterwarnings("ignore:Field name .* shadows")
@pytest.mark.parametrize(("text", "said"), COMMAND, ids=["number", "import", "annotation", "reserved"])
def test_a_command_of_the_wrong_shape(cli: Any, install: Any, text: str, said: str, request: Any) -> None:
    module = f"hello_{request.node.callspec.id}"
    install("hello-command", {f"{module}.py": text}, {"atropos.commands": {"hello": f"{module}:hello"}})
    done = cli("hello")
    assert done.code == 4
    assert "command 'hello' of hello-command" in done.stderr
    assert said in done.stderr
