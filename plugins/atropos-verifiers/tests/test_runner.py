"""Our arithmetic, exported, under verifiers' own runner: the scores are those of `gen`.

ATROPOS_TEST_VF_EVAL names a Python that has verifiers 0.4, atropos-cli, atropos-verifiers and atropos-arithmetic.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("ATROPOS_TEST_VF_EVAL")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="ATROPOS_TEST_VF_EVAL names no Python with verifiers and our packages"),
]
TASKS = 5


class Sums(BaseHTTPRequestHandler):
    """A model that adds two numbers, right where the first is even; their runner wants its answers as a stream."""

    def do_GET(self) -> None:
        self.answer("application/json", json.dumps({"object": "list", "data": [{"id": "sums"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        first, second = map(int, re.findall(r"(\d+) \+ (\d+)", body["messages"][-1]["content"])[-1])
        reply = f"Answer: {first + second + first % 2}"
        message = {"role": "assistant", "content": reply}
        choice = {"index": 0, "finish_reason": "stop", "delta" if body.get("stream") else "message": message}
        kind = "chat.completion.chunk" if body.get("stream") else "chat.completion"
        said = json.dumps({"id": "0", "object": kind, "created": 0, "model": "sums", "choices": [choice]})
        if body.get("stream"):
            self.answer("text/event-stream", f"data: {said}\n\ndata: [DONE]\n\n")
        else:
            self.answer("application/json", said)

    def answer(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """Of the model's server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sums)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def test_the_scores_are_the_same(cli: Callable[..., Any], url: str, tmp_path: Path) -> None:
    assert PYTHON is not None
    package = tmp_path / "package"
    options = ("--kind", "add", "--difficulty", "easy")
    assert cli("export", "verifiers", "arithmetic", *options, "--package", "our-sums", "-o", package).code == 0
    run = tmp_path / "run"
    ended = cli(
        "gen", "arithmetic", *options, "--base-url", url, "--model", "sums", "--limit", TASKS, "--group-size", 1,
        "-q", "-o", run,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    done = subprocess.run(
        [
            str(Path(PYTHON).with_name("vf-eval")), "our-sums", "-m", "sums", "-n", str(TASKS), "-r", "1",
            "--client.base-url", url, "--client.api-key-var", "ANY_KEY", "--no-push", "--no-rich", "-c", "2",
            "--env.agent.harness.id", "null", "--env.agent.runtime.type", "subprocess",
            "-o", str(tmp_path / "theirs"), "--run.name", "theirs",
        ],
        env={**os.environ, "PYTHONPATH": str(package), "ANY_KEY": "x"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (run / "groups.jsonl").read_text().splitlines()
    ours = {group["task"]["id"]: group["rollouts"][0]["rewards"] for group in map(json.loads, lines)}
    (traces,) = (tmp_path / "theirs").rglob("traces.jsonl")
    theirs = {}
    for episode in map(json.loads, traces.read_text().splitlines()):
        (trace,) = episode["traces"]
        theirs[episode["task"]["data"]["id"]] = {name: item["score"] for name, item in trace["rewards"].items()}
    assert theirs == ours
    assert len({json.dumps(rewards) for rewards in ours.values()}) == 2
