"""Fixtures for all tests: isolation from the machine, the command line in process, made-up distributions."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import case_tables
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def known_plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is known of the installed plugins, as a user has it after the first command."""
    from atropos_cli.plugins.discovery import load_registry

    home = tmp_path_factory.mktemp("known")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ATROPOS_DISABLE_PLUGINS", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(home))
        load_registry()
    return home / "atropos" / "plugins.json"


@pytest.fixture(autouse=True)
def isolation(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, known_plugins: Path) -> Path:
    """A home and a working directory of the test's own, and none of the user's variables."""
    base = tmp_path_factory.mktemp("isolated")
    for name in ("home/.cache/atropos", "work"):
        (base / name).mkdir(parents=True)
    shutil.copy2(known_plugins, base / "home/.cache/atropos")
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


@dataclass(frozen=True)
class Result:
    """What one call of the program did."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """Call the program in process: cli("env", "list") -> Result. The registry is read anew at each call."""
    from atropos_cli.cli import app
    from atropos_cli.plugins.discovery import reset_registry

    def call(*args: str) -> Result:
        reset_registry()
        capfd.readouterr()
        code = app.run([str(arg) for arg in args])
        out = capfd.readouterr()
        return Result(code, out.out, out.err)

    root, variables = logging.getLogger(), dict(os.environ)
    level, handlers = root.level, list(root.handlers)
    yield call
    # --log-level, -q and -v hold for a whole process, which here is that of the next test too.
    root.setLevel(level)
    root.handlers[:] = handlers
    for name in [name for name in os.environ if name.endswith(("_LOG_LEVEL", "_VERBOSITY")) and name not in variables]:
        del os.environ[name]
    reset_registry()


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
