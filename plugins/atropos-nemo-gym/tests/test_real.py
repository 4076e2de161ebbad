"""A resource server of the package nemo-gym, unmodified. NEMO_GYM_PYTHON names a Python that has nemo-gym 0.4.0."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("NEMO_GYM_PYTHON")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="nemo-gym takes 1.1 GB and Python 3.12: NEMO_GYM_PYTHON names one"),
]
# Their own start needs Ray and a head server; the application is the same.
SERVE = """
import socket, uvicorn
from unittest.mock import MagicMock
from nemo_gym.server_utils import ServerClient
from resources_servers.example_session_state_mgmt import app
bound = socket.socket()
bound.bind(("127.0.0.1", 0))
config = app.StatefulCounterResourcesServerConfig(
    host="127.0.0.1", port=bound.getsockname()[1], entrypoint="app.py", name="counter", domain="other"
)
server = app.StatefulCounterResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
print(app.__file__, bound.getsockname()[1], flush=True)
uvicorn.run(server.setup_webserver(), fd=bound.fileno(), log_level="warning")
"""
PLAYER = """
import json, re
def reply(messages, request):
    numbers = re.findall(r"[0-9]+", messages[0].text)
    done = sum(message.role == "tool" for message in messages)
    if done < len(numbers):
        call = {"name": "increment_counter", "arguments": {"count": int(numbers[done])}}
        return "<tool_call>" + json.dumps(call) + "</tool_call>"
    return "Done."
"""


@pytest.fixture
def real() -> Iterator[tuple[str, Path]]:
    """(its address, its file of tasks)."""
    assert PYTHON is not None
    server = subprocess.Popen([PYTHON, "-c", SERVE], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    file, port = server.stdout.readline().rsplit(maxsplit=1)
    yield f"nemo-gym:http://127.0.0.1:{port}", Path(file).parent / "data" / "example.jsonl"
    server.terminate()
    server.wait(30)


def test_a_server_with_sessions_is_played(real: tuple[str, Path], cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "player.py").write_text(PLAYER)
    ended = cli(
        "gen", real[0], "--env.data", real[1], "--backend", "scripted", "--backend.function",
        f"{tmp_path / 'player.py'}:reply", "--backend.token-ids", "--group-size", 2, "-q", "-o", tmp_path / "run",
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    groups = [json.loads(line) for line in (tmp_path / "run" / "groups.jsonl").read_text().splitlines()]
    assert len(groups) == len(real[1].read_text().splitlines())
    assert {rollout["reward"] for group in groups for rollout in group["rollouts"]} == {1.0}
    ended = cli("sft-gen", tmp_path / "run", "--format", "tokens", "-o", tmp_path / "rows.jsonl")
    assert ended.code == 0, ended.stderr
