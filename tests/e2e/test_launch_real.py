"""`launch-vllm` with a real vLLM on CPU. Slow, and only where one is: ATROPOS_TEST_VLLM names its Python.

ATROPOS_TEST_VLLM_MODEL: a folder with a small model.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PYTHON = os.environ.get("ATROPOS_TEST_VLLM", "")
MODEL = os.environ.get("ATROPOS_TEST_VLLM_MODEL", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(not (PYTHON and MODEL), reason="ATROPOS_TEST_VLLM and ATROPOS_TEST_VLLM_MODEL are not set"),
]
PROGRAM = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()"]
LAUNCH = ["launch-vllm", MODEL, "--engine-python", PYTHON, "--context", "2048", "--name", "real"]


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def atropos(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL)


def below(root: int) -> dict[int, str]:
    """Names of the living processes below one."""
    children: dict[int, list[int]] = {}
    names = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            head, tail = (path / "stat").read_text().rsplit(")", 1)
            state, parent = tail.split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            children.setdefault(int(parent), []).append(int(path.name))
            names[int(path.name)] = head.partition("(")[2]
    found, todo = {}, [root]
    while todo:
        for pid in children.get(todo.pop(), []):
            found[pid] = names[pid]
            todo.append(pid)
    return found


def test_detached_gen_stop() -> None:
    done = atropos(*LAUNCH, "--detach", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    can = record["capabilities"]
    assert (can["token_ids"], can["logprobs"], can["prompt_logprobs"], can["tools"]) == (True, True, True, False)
    url = record["urls"][0]
    words = ("--limit", "2", "--group-size", "2", "--max-tokens", "16", "--logprobs", "require", "-o", "-")
    made = atropos("gen", "arithmetic", "--base-url", url, *words)
    assert made.returncode == 0, made.stderr
    assert len(made.stdout.splitlines()) == 2
    assert atropos("launch-vllm", "--status", "--name", "real").returncode == 0
    began = time.monotonic()
    assert atropos("launch-vllm", "--stop", "--name", "real").returncode == 0
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("victim", ["EngineCor", "Worker", ""])
def test_a_killed_process_ends_all(victim: str, tmp_path: Path) -> None:
    """The engine, its worker, and the API server, which is the program itself."""
    process = subprocess.Popen([*PROGRAM, *LAUNCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("http://")
        endpoint = json.loads((tmp_path / "atropos/servers/real/endpoints/server0.json").read_text())
        tree = below(endpoint["parent"])
        pid = next(pid for pid, name in tree.items() if victim in name) if victim else endpoint["pid"]
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        assert process.wait(60) == 5
        assert time.monotonic() - began < 10
        deadline = time.monotonic() + 5  # giving back its memory takes a large process a moment
        while (left := [pid for pid in tree if _living(pid)]) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
