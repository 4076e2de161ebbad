"""Programs called vllm and sglang that serve as the engines do, or fail as they do, by the variable STAND_IN."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ENGINE = f"""#!{sys.executable}
import json, os, subprocess, sys, time
from pathlib import Path

words, mode = sys.argv[1:], os.environ.get("STAND_IN", "")
print("stand-in", json.dumps(words), flush=True)
print("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
if mode == "memory":
    time.sleep(1)
    print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", flush=True)
    sys.exit(1)
if mode == "silent":
    time.sleep(600)
if mode == "children":
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    children = [subprocess.Popen(sleep) for _ in range(2)] + [subprocess.Popen(sleep, start_new_session=True)]
    Path(os.environ["PIDS"]).write_text(json.dumps([os.getpid(), *(child.pid for child in children)]))
port = words[words.index("--port") + 1]
model = words[words.index("--model-path") + 1] if "--model-path" in words else words[1]
host = words[words.index("--host") + 1]
if mode == "dead":
    from atropos_authoring.mock_server import MockServer
    first = dict(path="/health", status=200, json=dict(), times=1)
    later = dict(path="/health", status=503, json=dict(), times=-1)
    with MockServer([first, later, dict(reply="ok", times=-1)], flavor="FLAVOR", models=(model,), port=int(port)):
        time.sleep(600)
options = ["--host", host, "--port", port, "--flavor", "FLAVOR", "--model", model]
os.execv(sys.executable, [sys.executable, "-m", "atropos_authoring.mock_server", *options])
"""


def put_engines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write both programs into a folder and put it on PATH."""
    folder.mkdir()
    for name in ("vllm", "sglang"):
        (folder / name).write_text(ENGINE.replace("FLAVOR", name))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
