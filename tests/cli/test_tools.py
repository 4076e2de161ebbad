"""Episodes with tools, from the command line: calls by server and in text, counts, resume, training rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

ENVIRONMENT = '''
from atropos_cli.sdk import Task, reward, user
from atropos_cli.sdk.tools import ToolEnvironment


def add(a: int, b: int) -> int:
    """Add two numbers.

    a: the first number
    """
    return a + b


@reward
def right(task: Task, rollout) -> float:
    return float(str(task.answer) in rollout.text)


class Sums(ToolEnvironment):
    name = "sums"
    tools = (add,)
    rewards = (right,)

    def tasks(self, split):
        return [Task(id=str(a), prompt=(user(f"How much is {a} + 7?"),), answer=a + 7) for a in range(4)]
'''

PLAYER = """
import json, re

from atropos_cli.sdk import FunctionCall, Message, ToolCall


def call(a, **more):
    return "<tool_call>" + json.dumps({"name": "add", "arguments": {"a": a, "b": 7, **more}}) + "</tool_call>"


def reply(messages, request):
    assert [tool["function"]["name"] for tool in request.tools or ()] == ["add"]
    last, a = messages[-1], int(re.search(r"is (\\\\d+)", messages[0].text)[1])
    if last.role == "tool" and not last.text.startswith("error"):
        return f"It is {last.text}."
    if len(messages) > 1 or a == 0:
        return call(a)
    if a == 1:
        return call(a)[:-20]
    if a == 2:
        return call(a, c="seven").replace("7", '"7"')
    return call(a).replace("add", "subtract")
""".replace("\\\\", "\\")

FLAGS = ("--backend", "scripted", "--backend.token-ids", "--backend.function", "./player.py:reply", "--group-size", "2")


@pytest.fixture
def sums(isolation: Path) -> str:
    Path("sums.py").write_text(ENVIRONMENT)
    Path("player.py").write_text(PLAYER)
    return "./sums.py:Sums"


def groups(run: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in Path(run, "groups.jsonl").read_text().splitlines()]
    return sorted(lines, key=lambda group: int(group["task"]["id"]))


def summary(run: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Path(run, "summary.json").read_text())
    return data


FAILURES = {"truncated": 2, "wrong_type": 2, "unexpected": 2, "unknown_tool": 2}


def test_calls_are_executed_and_bad_ones_counted_by_kind(cli: Any, sums: str) -> None:
    assert cli("gen", sums, *FLAGS, "-o", "r").code == 0
    told = summary("r")
    assert told["rewards"] == {"right": 1.0}
    assert told["parse_failures"] == FAILURES
    good, cut, odd, unknown = (group["rollouts"][0] for group in groups("r"))
    assert "parse_failures" not in good
    assert cut["parse_failures"] == {"truncated": 1}
    assert [message["role"] for message in good["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert "truncated" in cut["messages"][2]["content"]
    assert "'c'" in odd["messages"][2]["content"]
    assert "'a'" not in odd["messages"][2]["content"]
    assert "there is no tool 'subtract'; there are: add" in unknown["messages"][2]["content"]
    assert good["metrics"] == {"turns": 2.0, "tool_calls": 1.0}
    assert good["info"] == {"tools_used": {"add": 1}}


def test_tokens_of_tool_results_are_never_trained_and_tools_are_kept(cli: Any, sums: str) -> None:
    assert cli("gen", sums, *FLAGS, "-o", "r").code == 0
    first = groups("r")[0]
    (tool,) = first["task"]["info"]["tools"]
    assert tool["function"]["parameters"]["properties"]["a"] == {"type": "integer", "description": "the first number"}
    asked = first["rollouts"][0]["messages"][0]["tokens"]["ids"]
    spans = [message["tokens"] for message in first["rollouts"][0]["messages"]]
    assert [span["mask"] for span in spans] == [False, True, False, True]
    assert not any(span["restart"] for span in spans)
    assert cli("sft-gen", "r", "-o", "rows.jsonl").code == 0
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    row = next(row for row in rows if row["messages"][0]["content"] == first["task"]["prompt"][0]["content"])
    assert [message["role"] for message in row["messages"]].count("tool") == 1
    assert json.loads(row["tools"])[0]["function"]["name"] == "add"
    assert cli("sft-gen", "r", "--format", "tokens", "-o", "tokens.jsonl").code == 0
    lines = [json.loads(line) for line in Path("tokens.jsonl").read_text().splitlines()]
    ids, mask = next((one["input_ids"], one["labels"]) for one in lines if one["input_ids"][: len(asked)] == asked)
    trained = bytes(token for token, label in zip(ids, mask, strict=True) if label != -100 and token < 256).decode()
    assert trained.startswith("<tool_call>")
    assert re.search(r"It is \d+\.$", trained)
    assert "How much" not in trained


def test_a_resumed_run_counts_what_was_counted_before(cli: Any, sums: str) -> None:
    assert cli("gen", sums, *FLAGS, "--limit", "2", "-o", "r").code == 0
    assert summary("r")["parse_failures"] == {"truncated": 2}
    assert cli("gen", sums, *FLAGS, "-o", "r", "--resume").code == 0
    assert summary("r")["parse_failures"] == FAILURES
    Path("r/totals.json").unlink()
    assert cli("gen", sums, *FLAGS, "-o", "r", "--resume").code == 0
    assert summary("r")["parse_failures"] == FAILURES


def test_totals_of_earlier_versions_are_believed(cli: Any, sums: str) -> None:
    assert cli("gen", sums, *FLAGS, "--limit", "1", "-o", "r").code == 0
    totals = json.loads(Path("r/totals.json").read_text())
    del totals["groups"]["parse_failures"]
    totals["groups"]["stop_reasons"] = {"done": 77}
    Path("r/totals.json").write_text(json.dumps(totals))
    assert cli("gen", sums, *FLAGS, "--limit", "1", "-o", "r", "--resume").code == 0
    assert summary("r")["stop_reasons"] == {"done": 77}


def answer(body: dict[str, Any], index: int) -> Any:
    """A model that calls `add`, and then says its result."""
    last = body["messages"][-1]
    text = last["content"] or ""
    if last["role"] == "tool" or "<tool_response>" in text:
        return f"It is {re.search(r'[0-9]+', text)[0]}."  # type: ignore[index]
    a = re.search(r"much is (\d+)", text)[1]  # type: ignore[index]
    return "<tool_call>" + json.dumps({"name": "add", "arguments": {"a": int(a), "b": 7}}) + "</tool_call>"


def parsed(body: dict[str, Any], index: int) -> Any:
    """As a server with a parser gives it."""
    text = answer(body, index)
    if not text.startswith("<tool_call>"):
        return text
    call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    calls = [{"id": "chatcmpl-tool-1", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def without_parser(request: Any) -> dict[str, Any] | None:
    """vLLM that was started without a tool parser refuses tools unless it need not look for calls."""
    body = request.json
    if not body.get("tools") or body.get("tool_choice") == "none":
        return None
    text = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    error = {"object": "error", "message": text, "type": "BadRequestError", "param": None, "code": 400}
    return {"status": 400, "json": error}


@pytest.mark.parametrize("parser", [True, False])
def test_servers_with_and_without_a_tool_parser(cli: Any, sums: str, parser: bool) -> None:
    server = MockServer(flavor="vllm", reply=parsed if parser else answer, handler=None if parser else without_parser)
    with server:
        flags = ("--base-url", server.base_url, "--group-size", "2", "--logprobs", "require")
        assert cli("gen", sums, *flags, "-o", "r").code == 0
        bodies = [request.json for request in server.generations]
    assert summary("r")["rewards"] == {"right": 1.0}
    assert summary("r")["parse_failures"] == {}
    assert all(body["tools"][0]["function"]["name"] == "add" for body in bodies)
    for group in groups("r"):
        for rollout in group["rollouts"]:
            replies = [message for message in rollout["messages"] if message["role"] == "assistant"]
            assert all(reply["tokens"]["mask"] is True and reply["tokens"]["ids"] for reply in replies)
            assert bool(replies[0].get("tool_calls")) is parser
    refused = [body for body in bodies if "tool_choice" not in body]
    assert bool(refused)
    if not parser:
        assert len(refused) < len(bodies) / 2


def test_tools_in_the_prompt_need_nothing_of_the_server(cli: Any, sums: str) -> None:
    with MockServer(flavor="strict", reply=answer) as server:
        flags = ("--base-url", server.base_url, "--tools-in", "prompt", "--group-size", "1")
        code = cli("gen", sums, *flags, "-o", "r").code
        bodies = [request.json for request in server.generations]
    assert code == 0
    assert summary("r")["rewards"] == {"right": 1.0}
    assert not any("tools" in body or message["role"] == "tool" for body in bodies for message in body["messages"])
    assert '"name": "add"' in bodies[0]["messages"][0]["content"]
    assert groups("r")[0]["task"]["info"]["tools"][0]["function"]["name"] == "add"


def test_an_endless_caller_is_cut_off(cli: Any, sums: str) -> None:
    Path("player.py").write_text(PLAYER.replace('return f"It is {last.text}."', "return call(a)"))
    assert cli("gen", sums, *FLAGS, "--max-turns", "3", "--limit", "1", "-o", "r").code == 0
    assert summary("r")["stop_reasons"] == {"step_limit": 2}
    assert summary("r")["metrics"]["tool_calls"] == 2.0


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("    tools = (add,)\n", "", "Sums has no tools; tools = (function,)"),
        ("tools = (add,)", "tools = (add)", "not method add"),
        ("def add(a: int, b: int)", "def add(*a: int)", "takes *a: int, which has no schema; name each parameter"),
        ("    def tasks", "    def toolbox(self, task):\n        yield add\n\n    def tasks", "not generator toolbox"),
    ],
)
def test_a_wrong_toolbox_is_told_with_a_way_out(cli: Any, sums: str, right: str, wrong: str, words: str) -> None:
    source = ENVIRONMENT.replace(right, wrong)
    assert source != ENVIRONMENT
    Path("sums.py").write_text(source)
    result = cli("gen", sums, *FLAGS, "--limit", "1", "-o", "r")
    assert result.code != 0
    assert words in result.stderr


@pytest.mark.parametrize("tools", ["(add,)", "None", "tool_of(add).schema"])
def test_an_episode_offers_schemas(cli: Any, sums: str, tools: str) -> None:
    more = f"""

from atropos_cli.sdk import Environment, SingleTurn
from atropos_cli.sdk.tools import tool_of


class One(SingleTurn):
    tools = {tools}


class Wrong(Environment):
    name = "wrong"
    rewards = (right,)

    def tasks(self, split):
        return [Task(id="1", prompt=(user("x"),), answer=1)]

    def episode(self, task):
        return One(task)
"""
    Path("sums.py").write_text(ENVIRONMENT + more)
    result = cli("gen", "./sums.py:Wrong", *FLAGS, "-o", "r")
    assert result.code != 0
    assert "not a list of OpenAI function schemas" in result.stderr
    assert summary("r")["failures"] == {"environment:PluginError": 2}


def test_the_page_of_an_environment_does_not_describe_its_base_class(cli: Any, sums: str) -> None:
    assert "whose model calls Python functions" not in cli("env", "info", sums).stdout
    assert "whose model calls Python functions" not in cli("gen", sums, "--help").stdout


def refuses_broken_history(request: Any) -> dict[str, Any] | None:
    """As servers do: each call has arguments that are JSON, and an answer."""
    open_calls: list[str] = []
    for message in request.json.get("messages", ()):
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return {"status": 400, "json": {"error": {"message": f"no answers to {open_calls}"}}}
        for call in message.get("tool_calls", ()):
            open_calls.append(call["id"])
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                return {"status": 400, "json": {"error": {"message": "arguments"}}}
    return None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [('{"a": 1, "b"', "cannot be read (truncated)"), ("{'a': 1, 'b': 7}", "8"), ("[1]", "cannot be read")],
)
def test_a_servers_unreadable_call_is_answered_in_a_form_that_servers_take(
    cli: Any, sums: str, arguments: str, told: str
) -> None:
    def reply(body: dict[str, Any], index: int) -> Any:
        if body["messages"][-1]["role"] != "user":
            return "It is 8."
        call = {"id": "a-1", "type": "function", "function": {"name": "add", "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    with MockServer(reply=reply, handler=refuses_broken_history) as server:
        assert cli("gen", sums, "--base-url", server.base_url, "--group-size", "1", "--limit", "1", "-o", "r").code == 0
    (group,) = groups("r")
    assert [message["role"] for message in group["rollouts"][0]["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert told in group["rollouts"][0]["messages"][2]["content"]
    assert group["rollouts"][0]["messages"][1]["tool_calls"][0]["function"]["arguments"] == arguments
