"""Ratings, and the tables of `atropos analyze` for games."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from atropos_games import kuhn
from atropos_games.analysis import GamesAnalyzer
from atropos_games.ratings import Pair, ratings
from games_support import play, random_player

from atropos_cli.cli import app
from atropos_cli.sdk.analysis import AnalyzedGroup, AnalyzedRollout


def test_ratings_recover_the_strengths_that_made_the_results() -> None:
    true = {"a": 1700.0, "b": 1500.0, "c": 1300.0}
    rng, pairs = random.Random(0), {}
    for one, other in (("a", "b"), ("b", "c"), ("c", "a")):
        chance = 1 / (1 + 10 ** ((true[other] - true[one]) / 400))
        pairs[one, other] = Pair(20_000, sum(rng.random() < chance for _ in range(20_000)))
    assert ratings(pairs) == pytest.approx(true, abs=15)
    assert list(ratings(pairs)) == ["a", "b", "c"]


def test_ratings_of_all_and_of_no_points_are_finite() -> None:
    found = ratings({("a", "b"): Pair(100, 100.0), ("b", "c"): Pair(10, 5.0), ("x", "y"): Pair(4, 2.0)})
    assert found["a"] - found["b"] == pytest.approx(400 * 2.303, rel=0.01)  # 100.5 to 0.5 is odds of 201
    assert found["b"] == pytest.approx(found["c"])
    assert found["x"] == found["y"] == pytest.approx(1500)
    assert ratings({}) == {}


def side(outcome: str, *, seat: str = "first", opponent: str = "random", **info: Any) -> AnalyzedRollout:
    told: Mapping[str, Any] = {"outcome": outcome, "seat": seat, "opponent": opponent, **info}
    return AnalyzedRollout(reward=0.0, rewards={}, metrics={}, info=told, messages=())


def group(*rollouts: AnalyzedRollout, game: str = "kuhn", model: str | None = "m") -> AnalyzedGroup:
    return AnalyzedGroup("g", "t", {"game": game}, rollouts, model=model)


def tables(*groups: AnalyzedGroup) -> dict[str, list[dict[str, Any]]]:
    analyzer = GamesAnalyzer()
    for one in groups:
        analyzer.add(one)
    return {
        table.name: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in analyzer.tables()
    }


def test_outcomes_are_kept_apart() -> None:
    found = tables(
        group(side("won"), side("won_by_format"), side("lost_by_format"), side("lost"), game="tictactoe"),
        group(side("drawn", seat="second"), side("truncated", seat="second"), game="tictactoe"),
        group(side("won", opponent="self"), side("lost", opponent="self"), game="tictactoe"),
    )
    assert [(row["opponent"], row["seat"], row["sides"]) for row in found["games"]] == [
        ("random", "first", 4),
        ("random", "second", 2),
        ("self", "first", 2),
    ]
    assert found["games"][0]["won"] == found["games"][0]["lost_by_format"] == 0.25
    assert {row["player"]: (row["games"], row["score"]) for row in found["elo"]} == {"m": (5, 0.5), "random": (5, 0.5)}


def test_exploitability_of_sampled_moves_nears_that_of_the_strategy() -> None:
    rng = random.Random(0)

    def sampled(strategy: Mapping[str, float]) -> AnalyzedGroup:
        decisions = []
        for name, bold in strategy.items():
            moves = ("fold", "call") if name.endswith("bet") else ("check", "bet")
            decisions += [[name, moves[rng.random() < bold]] for _ in range(3000)]
        return group(side("won", decisions=decisions))

    (row,) = tables(sampled(kuhn.EQUILIBRIUM))["exploitability"]
    assert 0 <= row["exploitability"] < 0.02
    assert row["sets met"] == 12
    bad = {name: float(name.endswith("bet")) for name in kuhn.EQUILIBRIUM}
    (row,) = tables(sampled(bad))["exploitability"]
    assert row["exploitability"] == pytest.approx(kuhn.exploitability(bad))


def test_odd_records_are_left_out() -> None:
    odd: list[Any] = [None, [], "x", [["jack"], ["jack", 3], ["ace", "bet"], [{}, {}], 7, ["jack", "bet"]]]
    found = tables(*(group(side("won", decisions=decisions), model=None) for decisions in odd))
    assert found["games"][0]["sides"] == 4
    assert found["exploitability"][0]["decisions"] == 1
    assert tables(AnalyzedGroup("g", "t", {}, [AnalyzedRollout(None, {}, {}, {"outcome": 5}, ())])) == {"games": []}


def test_analyze_and_eval_report_games(tmp_path: Path, atropos_clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(Path("run"), random_player(), game="kuhn", opponent=("self", "perfect"), limit=120, group_size=1)
    assert app.run(["analyze", "run", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    text = json.dumps(report)
    assert "exploitability" in text
    assert "lost_by_format" in text
    Path("player.py").write_text(
        "import re\n\n\ndef reply(messages, request):\n"
        "    return '[' + re.findall(r'\\[([^\\]]+)\\]', messages[-1].text)[0] + ']'\n"
    )
    backend = ("--backend", "scripted", "--backend.function", "./player.py:reply")
    assert app.run(["eval", "games", "--opponent", "random", "--limit", "20", *backend, "-o", "e", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["evaluations"][0]
    assert found["success_rule"] == "info.won"
    rates = Counter({name: found["metrics"][name] for name in ("won", "drawn", "lost", "lost_by_format")})
    assert sum(rates.values()) == pytest.approx(1.0)
    assert found["accuracy"]["value"] == pytest.approx(rates["won"])
