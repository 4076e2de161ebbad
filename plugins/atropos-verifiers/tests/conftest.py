"""Environments of verifiers of our own, and Pythons with the real packages, made once and kept in the user's cache."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Result, command_line

HERE = Path(__file__).parent
# Before a test puts another home in its place.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atropos-tests"
NAMED = {name: value for name, value in os.environ.items() if name.startswith("ATROPOS_TEST_VERIFIERS_")}
Gen = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def cli(atropos_clean: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """Call the program in process: cli("env", "list") -> Result."""
    yield from command_line(capfd)


def python_with(version: str) -> str:
    """A Python that has this verifiers. ATROPOS_TEST_VERIFIERS_0_4_0 and so on name one; else it is made."""
    from atropos_cli.foreign.venvs import make

    named = NAMED.get(f"ATROPOS_TEST_VERIFIERS_{version.replace('.', '_')}")
    place = CACHE / f"verifiers-{version}"
    python = named or str(place / "bin" / "python")
    if not Path(python).exists():
        python = make(place, (f"verifiers=={version}",), python=None, say=print)
    return python


@pytest.fixture
def python() -> Callable[[str], str]:
    """python("0.4.0") -> the path of a Python with this verifiers."""
    return python_with


@pytest.fixture
def add(cli: Callable[..., Result]) -> Callable[[str, str], str]:
    """add("sums_from", "0.4.0") -> the name of the environment, known now."""

    def call(name: str, version: str) -> str:
        source = HERE / "envs" / f"{name}.py"
        ended = cli("env", "add", "verifiers", name, "--from", source, "--python", python_with(version))
        assert ended.code == 0, ended.stderr
        return f"verifiers:{name}"

    return call


@pytest.fixture
def gen(cli: Callable[..., Result], tmp_path: Path) -> Gen:
    """gen(name, ["reply", ...], "--option") -> the groups in the folder of the run."""

    def call(name: str, replies: list[str], *options: Any, code: int = 0, folder: str = "run") -> list[dict[str, Any]]:
        given = [word for reply in replies for word in ("--backend.replies", reply)]
        out = tmp_path / folder
        ended = cli("gen", name, "--backend", "scripted", *given, "--backend.token-ids", "-q", "-o", out, *options)
        assert ended.code == code, ended.stderr
        file = out / "groups.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    return call
