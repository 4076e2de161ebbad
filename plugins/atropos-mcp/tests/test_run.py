"""`atropos gen --tools mcp:COMMAND`: the whole way, with the options, the list of tools, and a resumed run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from in_process import Result

Cli = Callable[..., Result]
ODD = Path(__file__).with_name("odd_server.py")
ENVIRONMENT = """
from atropos_cli.sdk import Environment, Task, reward, user

@reward
def right(task, rollout):
    return float(rollout.text == task.answer)

class Echo(Environment):
    name = "echo"
    rewards = (right,)

    def tasks(self, split):
        for word in ("a", "die", "b"):
            yield Task(id=word, prompt=(user(word),), answer=f"echo: {word} (1)")
"""
PLAYER = """
import json

def reply(messages, request):
    if messages[-1].role == "tool":
        return messages[-1].text
    call = {"name": "echo", "arguments": {"text": messages[0].text}}
    return f"<tool_call>{json.dumps(call)}</tool_call>"
"""


def files() -> list[str]:
    Path("echo.py").write_text(ENVIRONMENT)
    Path("player.py").write_text(PLAYER)
    return ["./echo.py:Echo", "--backend", "scripted", "--backend.function", "./player.py:reply"]


def command(mode: str = "plain") -> str:
    return f"mcp:{sys.executable} {ODD} {mode}"


def groups(run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(run, "groups.jsonl").read_text().splitlines()]


def test_a_server_that_dies_fails_its_own_rollouts_and_a_run_is_resumed(cli: Cli) -> None:
    gen = ["gen", *files(), "--tools", command(), "--group-size", "2", "--output", "run"]
    first = cli(*gen, "--limit", "2")
    assert first.code == 1, first.stderr
    failed = json.loads(Path("run/failures.jsonl").read_text().splitlines()[0])
    assert "the disk is on fire" in failed["message"]
    resumed = cli(*gen, "--limit", "3", "--resume")
    assert resumed.code == 1, resumed.stderr
    written = {group["task"]["id"]: [one["reward"] for one in group["rollouts"]] for group in groups("run")}
    assert written["a"] == written["b"] == [1.0, 1.0]
    other = cli(*gen, "--limit", "3", "--resume", "--tools", command("noise"))
    assert other.code != 0  # other tools make another run


def test_a_dry_run_lists_the_tools(cli: Cli) -> None:
    done = cli("gen", *files(), "--tools", command(), "--tool.mcp.only", "echo", "--dry-run")
    assert done.code == 0, done.stderr
    assert "echo(text): The tool echo." in done.stderr
    assert "state(" not in done.stderr


def test_options_come_from_a_file_and_variables_and_keys_stay_out_of_the_plan(cli: Cli, monkeypatch: Any) -> None:
    monkeypatch.setenv("SHOP_KEY", "sk-very-secret-0123456789")
    monkeypatch.setenv("ATROPOS_TOOL__MCP__TIMEOUT", "7")
    arguments = files()
    Path("atropos.toml").write_text(
        f'tools = ["{command()}"]\n[tool.mcp]\nonly = ["echo"]\nenv = ["SHOP_KEY"]\nworkers = 2\n'
    )
    done = cli("gen", *arguments, "--dry-run", "--json")
    assert done.code == 0, done.stderr
    (tools,) = done.json["tools"]
    assert (tools["config"]["only"], tools["config"]["timeout"], tools["access"]["workers"]) == (["echo"], 7.0, 2)
    assert tools["config"]["env"] == ["SHOP_KEY"]
    assert "sk-very-secret" not in done.stdout + done.stderr


def test_a_server_that_does_not_start_is_an_error_before_the_run(cli: Cli) -> None:
    done = cli("gen", *files(), "--tools", command("dead"), "--output", "run")
    assert done.code != 0
    assert "No module named 'shop'" in done.stderr
