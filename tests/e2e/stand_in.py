"""Programs called vllm and sglang that serve as the engines do, or fail as they do, by the variable STAND_IN."""

from __future__ import annotations

import os
import sys
import venv
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


SGLANG = """
import json, os, sys, time
from atropos_authoring.mock_server import MockServer

def value(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None

def main(form):
    key = os.environ.get("STAND_IN_KEY") or value("--api-key")
    print("stand-in", form, json.dumps(sys.argv[1:]).replace(key or " ", "***"), flush=True)
    def door(request):
        free = request.path.startswith(("/health", "/ready"))
        refused = key and not free and request.headers.get("authorization") != f"Bearer {key}"
        return dict(status=401, json=dict(error="Unauthorized")) if refused else None
    server = MockServer(flavor="sglang", models=(value("--model-path"),), host=value("--host"),
                        port=int(value("--port")), handler=door)
    server.model.weight_updates = True
    with server:
        time.sleep(600)
"""
SERVES = """
import sys
def main():
    assert sys.argv[1] == "serve", sys.argv
    from sglang.stand_in import main
    main("serve")
"""
ROUTER = """
import http.client, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

words = sys.argv[1:]
first = words.index("--worker-urls") + 1
workers = [word for word in words[first:] if word.startswith("http://")]
print("stand-in router", words, flush=True)

class Router(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    turn = 0
    def answer(self):
        Router.turn += 1
        worker = workers[Router.turn % len(workers)].removeprefix("http://")
        connection = http.client.HTTPConnection(worker, timeout=30)
        path = "/health" if self.path == "/readiness" else self.path
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        connection.request(self.command, path, body or None, dict(self.headers))
        got = connection.getresponse()
        data = got.read()
        self.send_response(got.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    do_GET = do_POST = answer
    def log_message(self, *_):
        pass

address = (words[words.index("--host") + 1], int(words[words.index("--port") + 1]))
ThreadingHTTPServer(address, Router).serve_forever()
"""
FORMS = {
    "new": {"cli/serve.py": "", "launch_server.py": "from sglang.stand_in import main\nmain('module')"},
    "old": {"launch_server.py": "from sglang.stand_in import main\nmain('module')"},
    "late": {"cli/serve.py": ""},
}
"""What SGLang had before `sglang serve`, has with it, and will have without the module."""


def put_sglang(folder: Path, form: str, *, command: bool = True, router: bool = False) -> str:
    """Make an environment with a package sglang of that form; its Python. command: with bin/sglang."""
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "tests.pth").write_text("\n".join(path for path in sys.path if path))
    for name, text in {"__init__.py": "", "stand_in.py": SGLANG, **FORMS[form]}.items():
        (site / "sglang" / name).parent.mkdir(parents=True, exist_ok=True)
        (site / "sglang" / name).write_text(text)
    python = folder / "bin/python"
    if form != "old":
        (site / "sglang/cli/__init__.py").write_text("")
        (site / "sglang/cli/main.py").write_text(SERVES)
        if command:
            (folder / "bin/sglang").write_text(f"#!{python}\nfrom sglang.cli.main import main\nmain()\n")
            (folder / "bin/sglang").chmod(0o755)
    if router:
        (site / "sglang_router").mkdir()
        (site / "sglang_router/__init__.py").write_text("")
        (site / "sglang_router/launch_router.py").write_text(ROUTER)
    return str(python)
