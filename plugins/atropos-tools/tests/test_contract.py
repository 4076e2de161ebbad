"""The contract that every environment keeps, and the tasks played by their gold calls through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import EnvironmentContract, RewardContract
from atropos_tools.environment import ToolsDemo, solved

from atropos_cli.sdk import Rollout, Task, assistant

PLAYER = """
import json
from atropos_cli.sdk import FunctionCall, Message, ToolCall
from atropos_tools.environment import ToolsDemo, ToolsDemoConfig
from atropos_tools.tasks import problem_of

TASKS = [task for _, task in zip(range(30), ToolsDemo(ToolsDemoConfig()).tasks("train"))]


def reply(messages, request):
    task = next(task for task in TASKS if task.prompt[-1].text == messages[1].text)
    problem = problem_of(task.info["kind"], task.info["key"])
    results = [message for message in messages if message.role == "tool"]
    if len(results) == len(problem.calls):
        last = results[-1].text
        return f"The result is {json.loads(last)['rows'][0][0] if last.startswith('{') else last}."
    name, arguments = problem.calls[len(results)]
    call = ToolCall(function=FunctionCall(name=name, arguments=json.dumps(arguments)))
    return Message(role="assistant", tool_calls=(call,))


def lazy(messages, request):
    return "The result is 1."
"""


class TestContract(EnvironmentContract):
    environment = ToolsDemo
    replies = ('<tool_call>{"name": "calculate", "arguments": {"expression": "1 + 1"}}</tool_call>', "It is 2.")


class TestSolved(RewardContract):
    reward = solved
    cases = (
        (Task(id="t", answer=1200), "So it is 1,200.", 1.0),
        (Task(id="t", answer=7), "7 or 8", 0.0),
        (Task(id="t", answer=7), "<think>7</think> It is 7.0", 1.0),
        (Task(id="t", answer=7), "none", 0.0),
    )


def play(function: str) -> dict[str, Any]:
    from atropos_cli.cli import app

    Path("player.py").write_text(PLAYER)
    flags = ("--backend", "scripted", "--backend.function", f"./player.py:{function}", "--limit", "30")
    assert app.run(["gen", "tools-demo", *flags, "--group-size", "1", "-o", function]) == 0
    data: dict[str, Any] = json.loads(Path(function, "summary.json").read_text())
    return data


def test_the_gold_calls_earn_everything_and_a_guess_nothing(atropos_clean: Path) -> None:
    gold = play("reply")
    assert gold["rewards"] == {"tools_demo_solved": 1.0}
    assert gold["parse_failures"] == {}
    assert "tool_error" not in gold["metrics"]
    assert play("lazy")["rewards"] == {"tools_demo_solved": 0.0}


def test_a_file_counts_by_its_text() -> None:
    task = Task(id="t", answer="12", info={"kind": "files"})
    rollout = Rollout(id="r", task_id="t", messages=(assistant("12"),), info={"written": "12\n"})
    assert solved(task, rollout) == 1.0
    assert solved(task, rollout.replace(info={})) == 0.0


@pytest.mark.parametrize("kind", ["calculator", "database", "files"])
def test_each_kind_has_tasks_of_its_own(kind: str) -> None:
    environment = ToolsDemo(ToolsDemo.Config(kind=kind))
    tasks = environment.tasks("test")
    found = [tasks[index] for index in range(5)]
    assert {task.info["kind"] for task in found} == {kind}
    assert len({task.id for task in found}) == 5
    assert found[0].prompt == tasks[0].prompt
    assert all(environment.validate(task) for task in found)
