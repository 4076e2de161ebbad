"""A folder on sys.path in which tests lay out installed distributions, without pip."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from atropos_cli.plugins.discovery import reset_registry

FIXTURES = Path(__file__).parents[2] / "plugins_fixture"


class Site:
    """A site-packages folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, fixture: str) -> Path:
        """Lay out a distribution of tests/plugins_fixture as pip would; returns its record folder."""
        source = FIXTURES / fixture
        project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
        if (source / "src").is_dir():
            shutil.copytree(
                source / "src", self.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        return self.record(project["name"], project["entry-points"], version=project["version"])

    def record(
        self, dist: str, groups: Mapping[str, Mapping[str, str]], *, version: str = "1.0", folder: Path | None = None
    ) -> Path:
        """Write the *.dist-info folder of a distribution."""
        info = (folder or self.folder) / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        lines = []
        for group, points in groups.items():
            lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        importlib.invalidate_caches()
        return info

    def plugin(self, dist: str, source: str, *, entry_point: str | None = None) -> str:
        """Lay out a one-module plugin; returns the module's name."""
        module = dist.replace("-", "_") + "_module"
        (self.folder / f"{module}.py").write_text(
            "from atropos_cli.sdk import *\nfrom atropos_cli.sdk import hookimpl, ComponentSpec\n" + source
        )
        self.record(dist, {"atropos": {entry_point or dist: module}})
        return module


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith("ATROPOS_"):
            monkeypatch.delenv(name)
    reset_registry()
    yield
    reset_registry()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield Site(folder)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
