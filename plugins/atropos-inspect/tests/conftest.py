"""The program in process, and a Python with inspect_ai, in a virtual environment that is made once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Result, command_line

FILE = Path(__file__).parent / "envs" / "quiz.py"
# Before a test puts another home in its place.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atropos-tests" / "inspect-ai-0.3.285"
Gen = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def cli(atropos_clean: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """Call the program in process: cli("env", "list") -> Result."""
    yield from command_line(capfd)


@pytest.fixture
def real(atropos_clean: Path) -> Path:
    """Make inspect_ai known. INSPECT_PYTHON names a Python that has it; else one is made."""
    from atropos_inspect.environment import REQUIREMENTS

    from atropos_cli.foreign.venvs import make
    from atropos_cli.sdk.foreign import Added, save

    python = os.environ.get("INSPECT_PYTHON") or str(CACHE / "bin" / "python")
    if not Path(python).exists():
        python = make(CACHE, REQUIREMENTS, python=None, say=print)
    save(Added(dialect="inspect", name="default", python=python))
    return FILE


@pytest.fixture
def gen(real: Path, cli: Callable[..., Result], tmp_path: Path) -> Gen:
    """gen("quiz", ["yes"], "--n", 3) -> the groups of the run in tmp_path / "run"."""

    def made(task: str, replies: list[str], *options: Any, size: int = 2) -> list[dict[str, Any]]:
        # Replies by the turn of the conversation, whatever other rollouts do meanwhile.
        player = tmp_path / "player.py"
        turns = "sum(message.role == 'assistant' for message in messages)"
        player.write_text(
            f"REPLIES = {replies!r}\n\n\ndef reply(messages, request):\n    return REPLIES[{turns} % len(REPLIES)]\n"
        )
        out = tmp_path / "run"
        ended = cli(
            "gen", f"inspect:{real}@{task}", "--backend", "scripted", "--backend.function", f"{player}:reply",
            "--backend.token-ids", "--group-size", size, "-q", "-o", out, *options,
        )  # fmt: skip
        assert ended.code == 0, ended.stderr
        file = out / "groups.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    return made
