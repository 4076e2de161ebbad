"""Agents without a model. Each reads its task's id from the system message, and the ground truth from tau2's data."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from atropos_cli.sdk import FunctionCall, Message, ToolCall

# tau2 has no action for this one, but an assertion about the state.
OWN: dict[str, list[dict[str, Any]]] = {
    "update_task_with_history_and_env_assertions": [
        {"name": "update_task_status", "arguments": {"task_id": "task_2", "status": "completed"}}
    ]
}


@cache
def tasks(domain: str) -> dict[str, Any]:
    file = Path(os.environ["TAU_DATA"], domain, "tasks.json")
    return {task["id"]: task for task in json.loads(file.read_text())}


def calling(name: str, arguments: dict[str, Any]) -> Message:
    call = ToolCall(id="call_x", function=FunctionCall(name=name, arguments=json.dumps(arguments)))
    return Message(role="assistant", content=None, tool_calls=(call,))


def plan(messages: Sequence[Message], offered: set[str]) -> list[Message | str]:
    """The agent's replies, one after the other."""
    found = re.match(r"<task>(\w+)/(.*)</task>", messages[0].text)
    assert found is not None
    criteria = tasks(found[1])[found[2]].get("evaluation_criteria") or {}
    solo = "done" in offered
    steps: list[Message | str] = []
    for action in OWN.get(found[2]) or criteria.get("actions") or ():
        if solo or action.get("requestor", "assistant") == "assistant":
            steps.append(calling(action["name"], action["arguments"]))
        else:
            steps.append(f"Please {action['name']} now.")
    facts = criteria.get("communicate_info") or ()
    return [*steps, *([calling("done", {})] if solo else ["; ".join(facts)] if facts else ())]


def gold(messages: Sequence[Message], request: Any) -> Message | str:
    """What tau2's ground truth does and says; then it has nothing more to say."""
    steps = plan(messages, {tool["function"]["name"] for tool in request.tools})
    # Calls of a task's history have other ids.
    said = [m for m in messages if m.role == "assistant" and m.finish_reason is not None]
    return steps[len(said)] if len(said) < len(steps) else "It is done."


def nothing(messages: Sequence[Message], request: Any) -> Message | str:
    """Does nothing, politely."""
    solo = any(tool["function"]["name"] == "done" for tool in request.tools)
    return calling("done", {}) if solo else "I am sorry, I cannot help you."
