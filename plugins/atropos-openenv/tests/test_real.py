"""Servers made of OpenEnv itself; ATROPOS_TEST_OPENENV names a Python that has it (tried: 0.2.1 and 0.10.0)."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("ATROPOS_TEST_OPENENV", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="ATROPOS_TEST_OPENENV is not set")
START_S = 600


@pytest.fixture
def real() -> Iterator[Callable[[str, int], str]]:
    """real("numbers", 2) -> openenv:URL, with two sessions."""
    servers = []

    def start(kind: str, sessions: int) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        script = Path(__file__).with_name("real_server.py")
        servers.append(subprocess.Popen([PYTHON, str(script), kind, str(port), str(sessions)]))
        ask = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            try:
                ask.open(f"http://127.0.0.1:{port}/health", timeout=5).read()
            except OSError:
                assert servers[-1].poll() is None, "the server ended"
                time.sleep(0.2)
            else:
                return f"openenv:http://127.0.0.1:{port}"
        raise TimeoutError(f"no server within {START_S} s")

    yield start
    for server in servers:
        server.kill()
        server.wait()


def test_a_server_with_two_sessions_plays_twelve_rollouts_and_they_become_rows(
    gen: Callable[..., Any], cli: Callable[..., Any], real: Callable[[str, int], str], tmp_path: Path
) -> None:
    options = ("--limit", 4, "--group-size", 3, "--workers", 12, "--data-seed", 7)
    groups = gen(real("numbers", 2), ["7", "8", "9"], *options)
    rollouts = [(group["task"]["info"]["seed"], item) for group in groups for item in group["rollouts"]]
    assert len(rollouts) == 12
    assert {item["messages"][0]["content"] for seed, item in rollouts if seed == 8} == {"the number is 8"}
    right = [float(item["messages"][1]["content"] == str(seed)) for seed, item in rollouts]
    assert [item["reward"] for _, item in rollouts] == right
    rows = tmp_path / "rows.jsonl"
    assert cli("sft-gen", tmp_path / "run", "--format", "tokens", "--select", "all", "-o", rows).code == 0
    assert len(rows.read_text().splitlines()) == 12


def test_tools_of_a_real_server(gen: Callable[..., Any], real: Callable[[str, int], str]) -> None:
    call = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 40}}</tool_call>'
    (group,) = gen(real("tools", 8), [call, "done"], "--limit", 1, "--group-size", 1)
    (rollout,) = group["rollouts"]
    assert [message["role"] for message in rollout["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert rollout["messages"][2]["content"] == "42"
    assert [tool["function"]["name"] for tool in group["task"]["info"]["tools"]] == ["add"]
