"""`atropos serve-env`: our environments through OpenEnv's protocol, played by our own client and by theirs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, WSMsgType

THEIRS = os.environ.get("ATROPOS_TEST_OPENENV")
"""A Python with OpenEnv (openenv or openenv-core, any version from 0.2.1)."""
Serve = Callable[..., str]


@pytest.fixture(scope="module")
def start() -> Iterator[Serve]:
    """start("arithmetic", "--sessions", "2") -> the address. A server for the module, ended as a user ends it."""
    servers: dict[tuple[str, ...], tuple[subprocess.Popen[str], str]] = {}

    def call(*words: str) -> str:
        if words not in servers:
            command = [sys.executable, "-m", "atropos_cli", "serve-env", *words, "--port", "0"]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert server.stdout is not None
            servers[words] = (server, server.stdout.readline().strip())
        return servers[words][1]

    yield call
    for server, _ in servers.values():
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


async def talk(address: str, *messages: Any) -> list[dict[str, Any]]:
    """The answers to messages of one session, until the server ends it; a text goes as it is."""
    async with ClientSession() as http, http.ws_connect(f"{address}/ws") as socket:
        answers = []
        for message in messages:
            try:
                await socket.send_str(message if isinstance(message, str) else json.dumps(message))
            except ConnectionError:
                break
            answer = await socket.receive(timeout=60)
            if answer.type is not WSMsgType.TEXT:
                break
            answers.append(json.loads(answer.data))
        return answers


def step(**action: Any) -> dict[str, Any]:
    return {"type": "step", "data": action}


def test_our_own_client_plays_it_with_the_same_rewards(
    gen: Callable[..., Any], cli: Callable[..., Any], start: Serve, tmp_path: Path
) -> None:
    address = start("arithmetic", "--sessions", "2")
    replies = ["Answer: 8", "Answer: 35"]
    options = ("--limit", 3, "--group-size", 2)
    groups = gen(f"openenv:{address}", replies, *options)
    ours = {}
    for number, reply in enumerate(replies):
        here = tmp_path / f"here{number}"
        words = ("--backend", "scripted", "--backend.replies", reply)
        assert cli("gen", "arithmetic", *words, "-q", "-o", here, "--limit", 3, "--group-size", 1).code == 0
        for line in (here / "groups.jsonl").open():
            group = json.loads(line)
            ours[group["task"]["prompt"][-1]["content"], reply] = group["rollouts"][0]["reward"]
    assert len(ours) == 6
    assert set(ours.values()) == {0.0, 1.0}
    # Which rollout got which reply depends on the order of requests, which run side by side.
    played = [rollout for group in groups for rollout in group["rollouts"]]
    assert sorted(rollout["messages"][-1]["content"] for rollout in played) == [replies[1]] * 3 + [replies[0]] * 3
    for rollout in played:
        first, reply = rollout["messages"][0]["content"], rollout["messages"][-1]["content"]
        (same,) = {score for (prompt, said), score in ours.items() if first.endswith(prompt) and said == reply}
        assert rollout["reward"] == same


def test_a_tool_environment_lists_its_tools_and_a_reply(gen: Callable[..., Any], start: Serve) -> None:
    address = start("tools-demo")
    call = '<tool_call>{"name": "calculate", "arguments": {"expression": "2*21"}}</tool_call>'
    answer = '<tool_call>{"name": "reply", "arguments": {"text": "Answer: 1"}}</tool_call>'
    (group,) = gen(f"openenv:{address}", [call, answer], "--limit", 1, "--group-size", 1)
    (rollout,) = group["rollouts"]
    assert rollout["messages"][2]["content"] == "42"
    assert (rollout["stop_reason"], rollout["info"]["done"]) == ("done", True)
    listed, answered = asyncio.run(
        talk(address, {"type": "reset", "data": {"seed": 0}}, step(type="list_tools"), step(tool_name="reply"))
    )[1:]
    assert {"calculate", "reply"} <= {tool["name"] for tool in listed["data"]["observation"]["tools"]}
    assert answered["data"]["code"] == "VALIDATION_ERROR"


def test_what_is_wrong_is_told_and_the_session_stays(start: Serve) -> None:
    address = start("arithmetic", "--sessions", "2")
    wrong = [
        step(message="x"),
        {"type": "reset", "data": {"seed": -1}},
        {"type": "reset", "data": {"seed": "1"}},
        {"type": "reset", "data": []},
        {"type": "dance"},
        "{",
        "[" * 100_000,
        "null",
        {"type": "mcp", "data": {"id": 7, "method": "tools/call"}},
    ]
    *refused, rpc = asyncio.run(talk(address, *wrong))
    codes = [answer["data"]["code"] for answer in refused]
    assert codes == [
        "EXECUTION_ERROR",
        *["VALIDATION_ERROR"] * 3,
        "UNKNOWN_TYPE",
        "INVALID_JSON",
        "INVALID_JSON",
        "VALIDATION_ERROR",
    ]
    assert (rpc["data"]["id"], rpc["data"]["error"]["code"]) == (7, -32601)
    reset = {"type": "reset", "data": {"seed": 1, "episode_id": "mine"}}
    said = asyncio.run(talk(address, reset, step(message=3), step(message="x"), step(message="x"), {"type": "state"}))
    first, number, ended, again, state = (answer["data"] for answer in said)
    assert first["reward"] is None
    assert first["observation"]["metadata"]["messages"][0]["role"] in ("system", "user")
    assert number["code"] == "VALIDATION_ERROR"
    assert (ended["done"], ended["reward"], ended["metadata"]["rewards"]) == (True, 0.0, {"arithmetic_exact": 0.0})
    assert "reset first" in again["message"]
    assert (state["episode_id"], state["step_count"], state["done"]) == ("mine", 1, True)


def test_sessions_are_limited_and_given_back_when_a_client_dies(start: Serve) -> None:
    address = start("arithmetic", "--sessions", "2")

    async def play() -> list[str]:
        async with ClientSession() as http:
            first, second = [await http.ws_connect(f"{address}/ws") for _ in range(2)]
            async with http.ws_connect(f"{address}/ws") as third:
                refused = await third.receive_json(timeout=60)
            first._response.connection.transport.abort()  # type: ignore[union-attr]
            for _ in range(100):
                async with http.ws_connect(f"{address}/ws") as fourth:
                    await fourth.send_json({"type": "reset", "data": {}})
                    answer = await fourth.receive_json(timeout=60)
                if answer["type"] == "observation":
                    break
                await asyncio.sleep(0.1)
            await second.close()
            return [refused["data"]["code"], answer["type"]]

    assert asyncio.run(play()) == ["CAPACITY_REACHED", "observation"]


TROUBLE = f"{Path(__file__).with_name('trouble.py')}:Trouble"
RESET = {"type": "reset", "data": {"seed": 0}}


@pytest.mark.parametrize("doing", ["raise", "leave", "hang", "fail when closed"])
def test_an_environment_in_trouble_keeps_no_session(start: Serve, doing: str) -> None:
    address = start(TROUBLE, "--sessions", "1")

    async def leave() -> list[Any]:
        """The answer to the step, if one comes; then the connection breaks, as that of a client that is killed."""
        async with ClientSession() as http:
            socket = await http.ws_connect(f"{address}/ws")
            answers = []
            for message in (RESET, step(message=doing)):
                await socket.send_json(message)
                try:
                    hangs = doing == "hang" and message is not RESET
                    answers.append(await socket.receive_json(timeout=1 if hangs else 60))
                except TimeoutError:
                    answers.append(None)
            socket._response.connection.transport.abort()  # type: ignore[union-attr]
            return answers[1:]

    (answer,) = asyncio.run(leave())
    expected = {"raise": "RuntimeError: the step broke", "leave": "RuntimeError: it called sys.exit(3)"}
    if doing in expected:
        assert answer["data"] == {"code": "EXECUTION_ERROR", "message": expected[doing]}
    else:
        assert (answer is None) is (doing == "hang")
    for _ in range(100):
        # refused, and the connection closed, until the server has noticed that the client is gone
        answers = asyncio.run(talk(address, RESET, step(message="four")))
        if answers[0]["type"] == "observation":
            break
        time.sleep(0.1)
    assert answers[1]["data"]["reward"] == 4.0


def test_an_episode_that_fails_to_close_does_not_hinder_the_next_one(start: Serve) -> None:
    address = start(TROUBLE, "--sessions", "1")
    said = asyncio.run(talk(address, RESET, step(message="fail when closed"), RESET, step(message="abc")))
    assert [answer["type"] for answer in said] == ["observation"] * 4
    assert said[3]["data"]["reward"] == 3.0


def test_messages_that_come_before_the_answer_are_answered_in_turn(start: Serve) -> None:
    address = start("arithmetic", "--sessions", "2")

    async def burst() -> list[dict[str, Any]]:
        async with ClientSession() as http, http.ws_connect(f"{address}/ws") as socket:
            for message in (RESET, {"type": "state"}, step(message="x"), {"type": "state"}, {"type": "close"}):
                await socket.send_json(message)
            return [await socket.receive_json(timeout=60) for _ in range(4)]

    first, before, ended, after = asyncio.run(burst())
    assert (first["type"], ended["data"]["done"]) == ("observation", True)
    assert (before["data"]["step_count"], after["data"]["step_count"]) == (0, 1)


def test_pages_of_other_sites_and_names_are_refused(start: Serve) -> None:
    address = start("arithmetic", "--sessions", "2")

    async def ask(**headers: str) -> int:
        async with ClientSession() as http, http.get(f"{address}/health", headers=headers) as answer:
            return answer.status

    assert asyncio.run(ask()) == 200
    assert asyncio.run(ask(Origin="http://elsewhere.example")) == 403
    assert asyncio.run(ask(Host="elsewhere.example")) == 421


def test_what_cannot_be_served_says_why(cli: Callable[..., Any]) -> None:
    games = cli("serve-env", "games", "--port", "0")
    assert (games.code, "game of several players" in games.stderr) == (2, True)
    split = cli("serve-env", "arithmetic", "--split", "nowhere", "--port", "0")
    assert (split.code, "has no split 'nowhere'" in split.stderr) == (2, True)


@pytest.mark.skipif(THEIRS is None, reason="ATROPOS_TEST_OPENENV names a Python with OpenEnv")
def test_their_own_clients_play_sums_tools_and_a_game(start: Serve) -> None:
    def theirs(*words: str) -> Any:
        script = Path(__file__).with_name("their_client.py")
        done = subprocess.run([str(THEIRS), str(script), *words], capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    sums = start("arithmetic", "--sessions", "2")
    played = theirs(sums, "text", "Answer: x")
    assert (played["reward"], played["done"], played["state"]["step_count"]) == (0.0, True, 1)
    limited = theirs(sums, "sessions", "4")
    assert (limited["sessions"], len(limited["refused"])) == (2, 2)
    tools = theirs(start("tools-demo"), "tools", '["calculate", {"expression": "2*3"}]', '["reply", {"text": "6"}]')
    assert (tools["results"][0], tools["done"]) == ("6", True)
    game = theirs(start("textworld"), "text", "look", "inventory")
    assert (len(game["seen"]), game["done"]) == (3, False)
