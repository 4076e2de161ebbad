"""Models of the Hugging Face hub, from a small hub on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.model, pytest.mark.slow]

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """owner/tiny is there, owner/gated asks for a licence, nothing else exists."""

    folder: Path

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0]
        if path.startswith(("/owner/gated/", "/api/models/owner/gated")):
            self._send(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "access is restricted"})
        elif path.startswith(("/owner/tiny/resolve/main/", f"/owner/tiny/resolve/{COMMIT}/")):
            file = self.folder / path.rsplit("/", 1)[1]
            if not file.is_file():
                return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            data = file.read_bytes()
            etag = hashlib.sha256(data).hexdigest()
            self._send(200, data, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, body=body)
        elif path.startswith("/api/models/owner/tiny/tree"):
            names = [{"type": "file", "path": file.name, "size": 1, "oid": "0"} for file in self.folder.iterdir()]
            self._send(200, json.dumps(names).encode(), {"Content-Type": "application/json"}, body=body)
        elif path.startswith("/api/models/owner/tiny"):
            names = [{"rfilename": file.name} for file in self.folder.iterdir()]
            info = {"id": "owner/tiny", "sha": COMMIT, "siblings": names, "tags": [], "private": False}
            self._send(200, json.dumps(info).encode(), {"Content-Type": "application/json"}, body=body)
        else:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        return None

    def _send(self, code: int, data: bytes, headers: dict[str, str], *, body: bool = True) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def hub(tiny: Path) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("TinyHub", (Hub,), {"folder": tiny}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def open_models(home: Path, endpoint: str, *models: str) -> list[str]:
    """Open each model in a fresh process; one line each: its first greedy ids, or the error and its hint."""
    code = """
        import asyncio, sys
        from atropos_cli.sdk.backends import BackendError, GenerateRequest, Sampling
        from atropos_local.backend import LocalBackend, LocalConfig

        async def one(model):
            backend = LocalBackend(LocalConfig(), model=model)
            try:
                await backend.open()
                request = GenerateRequest(prompt_ids=(1, 2), sampling=Sampling(temperature=0, max_tokens=3))
                print((await backend.generate(request)).completions[0].message.tokens.ids)
            except BackendError as error:
                print(error.message, "|", error.hint)
            await backend.close()

        for model in sys.argv[1:]:
            asyncio.run(one(model))
    """
    proxies = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "HF_HUB_OFFLINE")
    environment = {name: value for name, value in os.environ.items() if name.upper() not in proxies}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
    got = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *models],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert got.returncode == 0, got.stderr
    assert "Traceback" not in got.stderr
    return got.stdout.splitlines()


def test_fetched_once_then_used_without_the_hub(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{hub.server_address[1]}"
    fetched, missing, gated = open_models(tmp_path, endpoint, "owner/tiny", "owner/nowhere", "owner/gated")
    assert fetched.startswith("(")
    assert "'owner/nowhere' is neither a local path nor a model of the Hugging Face hub" in missing
    assert "'owner/gated' needs a Hugging Face account" in gated
    assert "hf auth login" in gated
    nobody = "http://127.0.0.1:9"
    again, other = open_models(tmp_path, nobody, "owner/tiny", "owner/other")
    assert again == fetched
    assert "'owner/other' is not on this machine, and the Hugging Face hub cannot be reached" in other
