"""Text games played by baselines through the command line, and what `atropos analyze` then says of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textworld")


@pytest.fixture
def atropos(tmp_path: Path) -> Any:
    """Runs the program with a game cache of its own; returns its standard output."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}

    def run(*words: str) -> str:
        command = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def tables(text: str) -> dict[str, dict[Any, dict[str, Any]]]:
    """Each table's rows by their first cell."""
    found = json.loads(text)["environments"]["textworld"]["tables"]
    return {name: {next(iter(row.values())): row for row in table["rows"]} for name, table in found.items()}


GAMES = ("--game-type", "quest-fetch", "--difficulty", "easy", "--workers", "4")


@pytest.mark.slow
def test_whole_games_of_oracle_and_chance(atropos: Any) -> None:
    for backend in ("textworld-oracle", "textworld-random"):
        atropos("gen", "textworld", "--backend", backend, *GAMES, "--limit", "3", "--group-size", "2", "-o", backend)
    found = tables(atropos("analyze", "textworld-oracle", "--json"))
    assert found["games"]["episodes"]["value"] == found["games"]["won"]["value"] == 6
    assert found["games"]["different games"]["value"] == 3
    assert found["kinds"]["quest-fetch"]["score"] == 1.0
    assert found["replies"]["in full form: thinking, memory, tool call"]["share"] == 1.0
    chance = tables(atropos("analyze", "textworld-random", "--json"))
    assert chance["games"]["wins per 1000 episodes"]["value"] < 1000
    assert chance["replies"]["commands without effect"]["share"] > 0.2


@pytest.mark.slow
def test_turns_with_memory_and_predictions(atropos: Any) -> None:
    turns = ("--group-by", "turn", "--memory", "--memory-embeddings", "hash", "--vrcli", "discrete")
    atropos(
        *("gen", "textworld", "--backend", "textworld-oracle", "--backend.token-ids", *GAMES, *turns),
        *("--vrcli-control", "null", "--limit", "3", "--group-size", "2", "-o", "run"),
    )
    found = tables(atropos("analyze", "run", "--json"))
    assert found["games"]["episodes"]["value"] == found["games"]["won"]["value"] == 3
    # The made-up logprobs do not depend on what comes before, so no prediction can help.
    assert found["vrcli"]["share of zero"]["value"] == 1.0
    assert found["vrcli"]["control: share above zero"]["value"] == 0.0
    assert found["vrcli"]["scoring requests a turn"]["value"] >= 2
    assert found["memory"]["memories written an episode"]["mean"] > 2
    assert 0 < found["memory"]["similarity of what is found"]["mean"] <= 1
    assert found["replies"]["with a valid memory"]["share"] == 1.0
