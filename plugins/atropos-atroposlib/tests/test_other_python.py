"""An environment under another Python, with packages that conflict with ours, in one run with one of ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SOURCE = f"{HERE / 'envs' / 'questions.py'}:QuestionsEnv"
# Before a test puts another home in its place.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atropos-tests" / "python-3.12"
PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
OPENAI = "1.55.3"


def found_python() -> str | None:
    """A Python 3.12 of this machine that runs."""
    for path in (shutil.which("python3.12"), *sorted(map(str, PYENV.glob("3.12*/bin/python")))):
        if path is not None and subprocess.run([path, "-c", "import venv"], capture_output=True).returncode == 0:
            return path
    return None


@pytest.fixture
def other() -> str:
    """A virtual environment of Python 3.12 with an openai from years before ours, made once."""
    from atropos_cli.foreign.venvs import make

    base = found_python()
    if base is None:
        pytest.skip("no Python 3.12 on this machine")
    python = CACHE / "bin" / "python"
    return str(python) if python.exists() else make(CACHE, (f"openai=={OPENAI}",), python=base, say=print)


@pytest.mark.slow
def test_a_mixture_of_two_pythons_with_packages_that_conflict(
    other: str, atropos_clean: Path, cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from atropos_cli.foreign.venvs import versions
    from atropos_cli.sdk.foreign import Added, save

    monkeypatch.setenv("PYTHONPATH", str(HERE / "standin"))
    save(
        Added(dialect="atroposlib", name="questions", source=SOURCE, python=other, versions=versions(other, ["openai"]))
    )
    row = next(row for row in json.loads(cli("env", "list", "--json").stdout) if row["name"] == "atroposlib:questions")
    assert (row["versions"]["python"][:4], row["versions"]["openai"]) == ("3.12", OPENAI)
    assert version("openai").partition(".")[0] != "1"
    out = tmp_path / "run"
    ended = cli(
        "gen", "mix", "--of", "arithmetic", "--of", "atroposlib:questions", "--backend", "scripted",
        "--backend.replies", "yes", "--backend.token-ids", "--limit", 4, "--group-size", 2, "-q", "-o", out,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    groups = [json.loads(line) for line in (out / "groups.jsonl").read_text().splitlines()]
    assert sorted(group["env"] for group in groups) == ["arithmetic", "arithmetic", "questions", "questions"]
    assert {name for group in groups for name in group["rollouts"][0]["rewards"]} >= {"atroposlib_score"}
    rows = tmp_path / "rows.jsonl"
    ended = cli("sft-gen", out, "--format", "tokens", "-o", rows)
    assert ended.code == 0, ended.stderr
    assert len(rows.read_text().splitlines()) == len(groups)
