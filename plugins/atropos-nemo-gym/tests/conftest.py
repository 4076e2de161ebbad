"""A server of the tests in a thread of its own, a file of its tasks, and the program in process."""

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
from counter_server import CounterServer

Gen = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def cli(atropos_clean: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """Call the program in process: cli("gen", ...) -> Result."""
    yield from command_line(capfd)


@pytest.fixture
def server() -> Iterator[tuple[str, CounterServer]]:
    """(nemo-gym:URL, the server)."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    made = CounterServer()
    runner, url = asyncio.run_coroutine_threadsafe(made.start(), loop).result(10)
    yield f"nemo-gym:{url}", made
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture
def gen(cli: Callable[..., Result], server: tuple[str, CounterServer], tmp_path: Path) -> Gen:
    """gen([row, ...], ["reply", ...], "--option") -> the groups of the run in tmp_path / "run"."""

    def made(
        rows: list[dict[str, Any]], replies: list[str], *options: Any, code: int = 0, folder: str = "run"
    ) -> list[dict[str, Any]]:
        data = tmp_path / "tasks.jsonl"
        data.write_text("".join(json.dumps(item) + "\n" for item in rows))
        # Replies by the turn of the conversation, whatever other episodes do meanwhile.
        player = tmp_path / "player.py"
        turns = "sum(message.role == 'assistant' for message in messages)"
        player.write_text(
            f"REPLIES = {replies!r}\n\n\ndef reply(messages, request):\n    return REPLIES[{turns} % len(REPLIES)]\n"
        )
        out = tmp_path / folder
        ended = cli(
            "gen", server[0], "--env.data", data, "--backend", "scripted", "--backend.function", f"{player}:reply",
            "--backend.token-ids", "-q", "-o", out, "--group-size", 1, *options,
        )  # fmt: skip
        assert ended.code == code, ended.stderr
        file = out / "groups.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    return made
