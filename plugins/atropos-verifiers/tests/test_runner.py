"""Our arithmetic, exported, under verifiers' own runner: the scores are those of `gen`.

ATROPOS_TEST_VF_EVAL names a Python that has verifiers 0.4, atropos-cli, atropos-verifiers and atropos-arithmetic.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

PYTHON = os.environ.get("ATROPOS_TEST_VF_EVAL")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="ATROPOS_TEST_VF_EVAL names no Python with verifiers and our packages"),
]
TASKS = 8


def sums(body: dict[str, Any], index: int) -> str:
    """Right where the first number is even."""
    text = body["messages"][-1]["content"]
    text = text if isinstance(text, str) else text[0]["text"]
    first, sign, second = re.findall(r"(\d+) ([-+*]) (\d+)", text)[-1]
    right = {"+": int(first) + int(second), "-": int(first) - int(second), "*": int(first) * int(second)}[sign]
    return f"Answer: {right if int(first) % 2 == 0 else right + 1}"


def test_the_scores_are_the_same(cli: Callable[..., Any], tmp_path: Path) -> None:
    assert PYTHON is not None
    package = tmp_path / "package"
    options = ("--kind", "add", "--difficulty", "easy")
    assert cli("export", "verifiers", "arithmetic", *options, "--package", "our-sums", "-o", package).code == 0
    with MockServer(reply=sums) as server:
        run = tmp_path / "run"
        ended = cli(
            "gen", "arithmetic", *options, "--base-url", server.base_url, "--model", "mock-model", "--limit", TASKS,
            "--group-size", 1, "-q", "-o", run,
        )  # fmt: skip
        assert ended.code == 0, ended.stderr
        done = subprocess.run(
            [
                str(Path(PYTHON).with_name("vf-eval")), "our-sums", "-m", "mock-model", "-n", str(TASKS), "-r", "1",
                "--client.base-url", server.base_url, "--client.api-key-var", "ANY_KEY", "--no-push", "--no-rich",
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
