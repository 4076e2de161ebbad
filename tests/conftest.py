"""Fixtures for all tests: isolation from the machine, the command line in process, made-up distributions."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import case_tables
import pytest
from in_process import Result, command_line

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def isolation(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, atropos_known: Path) -> Path:
    """A home and a working directory of the test's own, and none of the user's variables."""
    base = tmp_path_factory.mktemp("isolated")
    (base / "work").mkdir()
    shutil.copytree(atropos_known, base / "home/.cache")
    for variable in list(os.environ):
        if variable.startswith("ATROPOS_") and not variable.startswith("ATROPOS_TEST_"):
            monkeypatch.delenv(variable)
    for variable in (
        "NO_COLOR",
        "FORCE_COLOR",
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE",
        "WANDB_PROJECT",
        "WANDB_NAME",
        "_ATROPOS_DOTENV",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(base / "home"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(base / "work")
    return base / "work"


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """Call the program in process: cli("env", "list") -> Result. The registry is read anew at each call."""
    yield from command_line(capfd)


@pytest.fixture
def install(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make a distribution that looks installed: install("dist", {"pkg.py": code}, {"atropos": {"name": "pkg"}})."""

    def make(
        dist: str, files: Mapping[str, str], entry_points: Mapping[str, Mapping[str, str]], version: str = "1.0"
    ) -> Path:
        site = tmp_path_factory.mktemp("site")
        for name, text in files.items():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_text(text)
            monkeypatch.delitem(sys.modules, name.removesuffix(".py").replace("/", "."), raising=False)
        record = site / f"{dist.replace('-', '_')}-{version}.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        lines = [
            line
            for group, points in entry_points.items()
            for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()), "")
        ]
        (record / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(str(site))
        # for programs that a test starts
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]))
        return site

    return make


@pytest.fixture
def field_cases() -> dict[str, dict[str, Any]]:
    """Cases made after public bug reports of other tools, by id."""
    return {case["id"]: case for case in case_tables.table("field_cases")}
