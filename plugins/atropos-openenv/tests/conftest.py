"""A server of the tests in a thread of its own, and the program in process."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Result, command_line

sys.path.insert(0, str(Path(__file__).parent))
from openenv_server import GuessServer

Gen = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def cli(atropos_clean: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """Call the program in process: cli("gen", ...) -> Result."""
    yield from command_line(capfd)


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[str, GuessServer]]]:
    """serve("json", sessions=2) -> (openenv:URL, the server)."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runners = []

    def start(kind: str, **options: Any) -> tuple[str, GuessServer]:
        server = GuessServer(kind, **options)
        runner, url = asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
        runners.append(runner)
        return f"openenv:{url}", server

    yield start
    for runner in runners:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture
def gen(cli: Callable[..., Result], tmp_path: Path) -> Gen:
    """gen(name, ["reply", ...], "--option") -> the groups of a run; its folder is tmp_path / "run"."""

    def call(name: str, replies: list[str], *options: Any, code: int = 0) -> list[dict[str, Any]]:
        given = [word for reply in replies for word in ("--backend.replies", reply)]
        out = tmp_path / "run"
        ended = cli("gen", name, "--backend", "scripted", *given, "--backend.token-ids", "-q", "-o", out, *options)
        assert ended.code == code, ended.stderr
        file = out / "groups.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    return call
