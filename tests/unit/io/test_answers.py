"""Answers of other programs: kept while what they come from is the same, asked for again where they are damaged."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.distributed.pythons import ask
from atropos_cli.io.answers import environment_stamps, kept_answer


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "atropos" / "things"


class Asked:
    """Counts the questions."""

    times = 0

    def __call__(self) -> dict[str, Any]:
        self.times += 1
        return {"schema": {"a": 1}}


def test_asked_once(cache: Path) -> None:
    asked = Asked()
    assert [kept_answer("things", ["a", 1], asked) for _ in range(3)] == [{"schema": {"a": 1}}] * 3
    assert asked.times == 1
    kept_answer("things", ["a", 2], asked)
    assert asked.times == 2


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"schema": 1}', b"[" * 100_000])
@pytest.mark.parametrize("whole", [True, False])
def test_a_damaged_answer_is_asked_for_again(cache: Path, damage: bytes, whole: bool) -> None:
    asked = Asked()
    kept_answer("things", "k", asked)
    (file,) = cache.iterdir()
    before = file.read_bytes()
    file.write_bytes(damage if whole else before.replace(b'{"schema": {"a": 1}}', damage))
    assert kept_answer("things", "k", asked) == {"schema": {"a": 1}}
    assert asked.times == 2
    assert file.read_bytes() == before


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert kept_answer("things", "k", asked) == {"schema": {"a": 1}}
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert kept_answer("things", "k", asked) == {"schema": {"a": 1}}


def test_other_packages_in_a_python_are_noticed(tmp_path: Path) -> None:
    """The file that says when the virtual environment was made does not change with them."""
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    (packages / "engine-1.dist-info").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("")
    found = [environment_stamps(str(python))]
    for change in (
        lambda: (packages / "engine-1.dist-info").rename(packages / "engine-2.dist-info"),
        lambda: (packages / "engine-2.dist-info").rmdir(),
        lambda: os.utime(python, (1, 1)),
    ):
        time.sleep(0.02)
        change()
        found.append(environment_stamps(str(python)))
        assert found[-1] != found[-2]
    assert environment_stamps(str(python)) == found[-1]


@pytest.mark.parametrize("noise", [b"\\xff\\xfe", b"atropos-answer [1]", b"atropos-answer {"])
def test_what_a_package_prints_is_no_answer(cache: Path, tmp_path: Path, noise: bytes) -> None:
    python, script = tmp_path / "bin" / "python", tmp_path / "script"
    python.parent.mkdir()
    told = json.dumps({"fine": True})
    python.write_text(f"#!/bin/sh\ncat > /dev/null\nprintf 'atropos-answer {told}\\n{noise.decode()}\\n'\n")
    python.chmod(0o755)
    assert ask(str(python), script, {}, trainer="engine", how="") == {"fine": True}
