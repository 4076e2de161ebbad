"""`--overwrite` keeps the old run until the new one has ended well, and never touches one that is being written."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BAD = """
from atropos_cli.sdk import reward

@reward
def bad(task, rollout) -> float:
    raise ValueError("no")
"""
GEN = ("--backend", "scripted", "--backend.replies", "12", "--group-size", "2")


@pytest.fixture(autouse=True)
def digits() -> None:
    Path("digits.py").write_text("from atropos_authoring.digits import Digits\n")


@pytest.fixture
def old(cli: Any) -> Path:
    assert cli("gen", "./digits.py:Digits", *GEN, "--limit", "2", "--output", "run").code == 0
    return Path("run")


@pytest.fixture
def writer(old: Path) -> Iterator[Path]:
    """Another process holds the folder."""
    with (old / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield old


@pytest.mark.parametrize("command", ["gen", "eval"])
@pytest.mark.parametrize("given", ["run", "./run/", "link"])
def test_a_run_that_another_process_writes_is_not_replaced(cli: Any, writer: Path, command: str, given: str) -> None:
    Path("link").symlink_to("run")
    before = (writer / "groups.jsonl").read_bytes()
    options = GEN if command == "gen" else GEN[:4]
    done = cli(command, "./digits.py:Digits", *options, "--limit", "3", "--output", given, "--overwrite")
    assert done.code == 6, done.stderr
    assert "another process" in done.stderr
    assert (writer / "groups.jsonl").read_bytes() == before
    assert not Path("run.new").exists()


@pytest.mark.parametrize("how", ["fails", "ends well"])
def test_the_old_run_stays_until_the_new_one_has_ended_well(cli: Any, old: Path, how: str) -> None:
    before = (old / "groups.jsonl").read_bytes()
    if how == "fails":
        Path("bad.py").write_text(BAD)
    more = ("--reward", "./bad.py:bad") if how == "fails" else ()
    done = cli("gen", "./digits.py:Digits", *GEN, *more, "--limit", "3", "--output", "run", "--overwrite")
    if how == "ends well":
        assert done.code == 0
        assert len((old / "groups.jsonl").read_text().splitlines()) == 3
        return
    assert done.code == 1
    assert (old / "groups.jsonl").read_bytes() == before
    named = [word for word in done.stderr.replace(",", " ").split() if word.startswith("run.")]
    assert all(Path(word.strip("()")).exists() for word in named), "advice names a folder that exists"


def test_an_evaluation_that_failed_reports_itself_and_not_the_old_one(cli: Any) -> None:
    options = ("--backend", "scripted", "--output", "run", "--limit", "2", "--json")
    first = cli("eval", "./digits.py:Digits", *options, "--backend.replies", "12")
    assert first.code == 0
    Path("bad.py").write_text(BAD)
    second = cli(
        "eval", "./digits.py:Digits", *options, "--backend.replies", "12", "--reward", "./bad.py:bad", "--overwrite"
    )
    assert second.code == 1, second.stderr
    (found,) = second.json["evaluations"]
    (before,) = first.json["evaluations"]
    assert found["plan_digest"] != before["plan_digest"]
    assert json.loads(Path("run/eval.json").read_text())["plan_digest"] == before["plan_digest"]
