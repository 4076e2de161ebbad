"""The environment of the tests with atroposlib from the index, in a virtual environment that is made once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.sdk.foreign import Added, save

SOURCE = f"{Path(__file__).parent / 'envs' / 'questions.py'}:QuestionsEnv"
# Before a test puts another home in its place.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atropos-tests" / "atroposlib-0.4.0"


@pytest.fixture
def real(atropos_clean: Path) -> str:
    """The name of the environment. ATROPOSLIB_PYTHON names a Python that has atroposlib; else one is made."""
    from atropos_atroposlib.environment import REQUIREMENTS

    from atropos_cli.foreign.venvs import make

    python = os.environ.get("ATROPOSLIB_PYTHON") or str(CACHE / "bin" / "python")
    if not Path(python).exists():
        python = make(CACHE, REQUIREMENTS, python=None, say=print)
    save(Added(dialect="atroposlib", name="default", python=python))
    return f"atroposlib:{SOURCE}"


@pytest.mark.slow
def test_the_package_itself_runs_through_gen_score_and_rows(real: str, cli: Callable[..., Any], tmp_path: Path) -> None:
    for way, texts in (("chat", 1), ("turns", 2), ("managed", 1)):
        run = tmp_path / way
        ended = cli(
            "gen", real, "--way", way, "--backend", "scripted", "--backend.replies", "yes", "--backend.replies", "no",
            "--backend.token-ids", "--group-size", 4, "--limit", 2, "-q", "-o", run,
        )  # fmt: skip
        assert ended.code == 0, ended.stderr
        groups = [json.loads(line) for line in (run / "groups.jsonl").read_text().splitlines()]
        assert len(groups) == 2
        for rollout in (rollout for group in groups for rollout in group["rollouts"]):
            assert rollout["metrics"] == {"own_tokens": 0.0}
            assert sum("tokens" in message for message in rollout["messages"]) == texts
    scored = tmp_path / "scored.jsonl"
    assert cli("score", tmp_path / "turns", "--reward", "atroposlib_score", "-o", scored).code == 0
    rows = tmp_path / "rows.jsonl"
    ended = cli("sft-gen", scored, "--format", "tokens", "-o", rows)
    assert ended.code == 0, ended.stderr
    assert json.loads(rows.read_text().splitlines()[0])["input_ids"]
