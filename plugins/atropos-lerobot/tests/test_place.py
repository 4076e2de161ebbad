"""LeRobot's Python: found, or what to do to have one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_lerobot import place

from atropos_cli.sdk import AtroposError
from atropos_cli.sdk.foreign import Added, save

Cli = Callable[..., Any]


def test_there_is_none(cli: Cli, made: Callable[..., Path]) -> None:
    done = cli("train", "lerobot", "--dataset", made())
    assert (done.code, "no Python with LeRobot is known" in done.stderr) == (3, True)
    assert "atropos env add lerobot" in done.stderr


def test_one_without_lerobot(cli: Cli, made: Callable[..., Path]) -> None:
    done = cli("train", "lerobot", "--dataset", made(), "--lerobot", sys.executable)
    assert (done.code, "has no LeRobot" in done.stderr) == (3, True)
    done = cli("train", "lerobot", "--dataset", made(), "--lerobot", "/none/python")
    assert (done.code, "there is no LeRobot /none/python" in done.stderr) == (3, True)


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("printf '\\377\\n'", "is not a Python with LeRobot: it said"),
        ("echo hello", "is not a Python with LeRobot: it said 'hello'"),
        ("echo 0.3.9", "reads no datasets of format v3.0"),
        ("sleep 1000", "did not say within 1 s"),
    ],
)
def test_one_that_is_no_python(
    cli: Cli, made: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, told: str
) -> None:
    monkeypatch.setattr(place, "_START_S", 1.0)
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nexec {says}\n" if says.startswith("sleep") else f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    done = cli("train", "lerobot", "--dataset", made(), "--lerobot", program)
    assert (done.code, told in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize("says", ["null", "[1]", "printf '\\377'", "true"])
def test_one_that_answers_otherwise(tmp_path: Path, says: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{says if says.startswith('printf') or says == 'true' else f'echo {says!r}'}\n")
    program.chmod(0o755)
    with pytest.raises(AtroposError, match="did not answer"):
        place.ask(str(program), [])


def test_added_ones() -> None:
    with pytest.raises(AtroposError) as raised:
        place.python_of("0.5.1")
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("atropos env add lerobot 0.5.1")
    save(Added(dialect="lerobot", name="0.5.1", source="0.5.1", python=sys.executable))
    assert place.python_of("0.5.1") == sys.executable
    assert place.python_of(None) == sys.executable  # the only one
    save(Added(dialect="lerobot", name="default", python="/gone/python"))
    with pytest.raises(AtroposError, match="no Python at /gone/python"):
        place.python_of(None)


def test_what_is_installed() -> None:
    assert place.FAMILY.requirements == ("lerobot[training,groot,smolvla,diffusion]==0.6.1",)
    assert place.requirements_of("0.5.1")[0] == "lerobot[smolvla]==0.5.1"
    assert not any("flash" in item for item in place.requirements_of("0.5.1"))


def test_what_env_add_refuses(cli: Cli) -> None:
    done = cli("env", "add", "lerobot", "0.3.3")
    assert (done.code, "reads no datasets of format v3.0" in done.stderr) == (2, True), done.stderr
    done = cli("env", "add", "lerobot", "newest")
    assert (done.code, "is not a release of LeRobot" in done.stderr) == (2, True), done.stderr
    done = cli("env", "add", "lerobot", "--python", sys.executable)
    assert (done.code, "lacks lerobot" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("usage: x [-h]\n  --error: E\n\nx: error: unrecognized arguments: --a=1\n", "unrecognized arguments: --a=1"),
        ("error: `policy`: no value:\n    Config: no class\n\n", "`policy`: no value: Config: no class"),
        ("something else\n", "something else"),
        ("", ""),
    ],
)
def test_what_a_parser_complains_of(said: str, told: str) -> None:
    from atropos_lerobot.side import complaint

    assert complaint(said) == [told]


def test_a_python_that_is_new_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from atropos_cli.foreign import venvs

    assert venvs.python_since(None) is None
    assert venvs.python_since((3, 8)) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AtroposError, match=r"it needs Python 3\.14 or newer: none of python3\.14 is on PATH"):
        venvs.python_since((3, 14))
    shim = tmp_path / "python3.14"
    shim.write_text("#!/bin/sh\nexit 127\n")  # as of a version manager that lacks it
    shim.chmod(0o755)
    with pytest.raises(AtroposError):
        venvs.python_since((3, 14))
    shim.write_text("#!/bin/sh\nexit 0\n")
    assert venvs.python_since((3, 14)) == str(shim)
