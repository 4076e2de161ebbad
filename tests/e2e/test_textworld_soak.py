"""A short soak of text games; `tests/benchmarks/textworld_soak.py` makes the long one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parents[1] / "benchmarks" / "textworld_soak.py"


@pytest.mark.slow
def test_a_hundred_games_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("atropos_textworld")
    pytest.importorskip("faiss")
    spec = importlib.util.spec_from_file_location("textworld_soak", SOAK)
    assert spec is not None
    assert spec.loader is not None
    soak = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "textworld_soak", soak)
    spec.loader.exec_module(soak)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = ["--workers", "8", "--group-size", "2", "--group-by", "turn", "--memory"]
    figures = soak.run(100, 4, tmp_path, options=options, interval=0.2, backend="textworld-oracle")
    assert (figures.episodes, figures.won, figures.failed) == (100, 100, 0)
    assert figures.processes > 1
    assert figures.left_processes == []
    assert figures.left_files == []
    # Nothing unfinished in the cache either.
    games = sorted(path.name for path in (tmp_path / "cache" / "atropos" / "textworld" / "games").iterdir())
    assert len(games) == 8
    assert not any(name.startswith("tmp-") for name in games)
    # The first half holds the start; after it, a hundred games are too few for a finer bound.
    assert figures.memory[-1][1] < 1.5 * max(memory for done, memory in figures.memory if done < 75)
