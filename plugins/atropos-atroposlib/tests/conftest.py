"""A Python in which atroposlib can be imported: ours, with a stand-in of the package."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Result, command_line

HERE = Path(__file__).parent
SOURCE = f"{HERE / 'envs' / 'questions.py'}:QuestionsEnv"
Gen = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """Call the program in process: cli("env", "list") -> Result."""
    yield from command_line(capfd)


@pytest.fixture
def standin(atropos_clean: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the environment of the tests, with the stand-in behind it."""
    from atropos_cli.sdk.foreign import Added, save

    monkeypatch.setenv("PYTHONPATH", str(HERE / "standin"))
    save(Added(dialect="atroposlib", name="default", python=sys.executable))
    return f"atroposlib:{SOURCE}"


@pytest.fixture
def gen(standin: str, cli: Callable[..., Any], tmp_path: Path) -> Gen:
    """gen("run", "--way", "chat", code=0) -> the groups in the run's folder."""

    def call(folder: str, *options: Any, code: int = 0, limit: int = 3) -> list[dict[str, Any]]:
        out = tmp_path / folder
        ended = cli(
            "gen", standin, "--backend", "scripted", "--backend.replies", "yes", "--backend.replies", "no no",
            "--backend.token-ids", "--group-size", 4, "--limit", limit, "-q", "-o", out, *options,
        )  # fmt: skip
        assert ended.code == code, ended.stderr
        file = out / "groups.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    return call
