"""What `atropos analyze` says of text games, from groups of both forms, and in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from atropos_textworld.analysis.analyzer import OPEN_EPISODES, TextWorldAnalyzer
from atropos_textworld.analysis.counting import BINS, NAMES, ByName, Distinct, OverTime
from atropos_textworld.analysis.reading import Game, game_of, reply_of
from atropos_textworld.plugin import atropos_analyze

from atropos_cli.sdk.analysis import AnalysisTable, AnalyzedGroup, AnalyzedRollout

FULL = (
    "<think>{}</think><memory>The key is here.</memory>"
    '<tool_call>{{"name": "execute_command", "arguments": {{"command": "look"}}}}</tool_call>'
)


def info(won: bool, *, kind: str = "quest-fetch", difficulty: str = "easy", **more: Any) -> dict[str, Any]:
    score = {"score": 2 if won else 1, "max_score": 2, "steps": 6, "plan_length": 4, "lost": False, "game": kind}
    return {"won": won, "kind": kind, "difficulty": difficulty, **score, **more}


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "go"}, *({"role": "assistant", "content": text} for text in texts)]


def episode(won: bool, *texts: str, metrics: dict[str, float] | None = None, **more: Any) -> AnalyzedRollout:
    return AnalyzedRollout(
        reward=float(won), rewards={}, metrics=metrics or {}, info=info(won, **more), messages=said(*texts)
    )


def group(*rollouts: AnalyzedRollout, **more: Any) -> AnalyzedGroup:
    return AnalyzedGroup(group_id="g", task_id="t", task_info={}, rollouts=rollouts, **more)


def turn(number: int, rollouts: Sequence[AnalyzedRollout], *, last: bool, episode: str = "e") -> AnalyzedGroup:
    return group(*rollouts, episode_id=episode, turn=number, last=last)


def alternative(
    text: str, *, executed: bool, end: bool | None = None, vrcli: float | None = None, **metrics: float
) -> AnalyzedRollout:
    """One of a turn's replies; end: won or not, with the game's last turn."""
    more = {} if end is None else info(end)
    numbers: dict[str, float] = {"prediction_given": 1.0, **metrics}
    if vrcli is not None:
        numbers["vrcli_zero"] = float(vrcli == 0)
    return AnalyzedRollout(
        reward=0.5,
        rewards={} if vrcli is None else {"textworld_vrcli": vrcli},
        metrics=numbers,
        info={"executed": executed, "fault": None, **more},
        messages=said(text),
    )


def tables(analyzer: TextWorldAnalyzer) -> dict[str, AnalysisTable]:
    return {table.name: table for table in analyzer.tables()}


def values(table: AnalysisTable) -> dict[Any, Any]:
    """The second column by the first."""
    return {row[0]: row[1] for row in table.rows}


def test_whole_games() -> None:
    analyzer = TextWorldAnalyzer()
    metrics = {"malformed": 1, "malformed_empty": 1, "refused": 0, "invalid_commands": 2}
    analyzer.add(group(episode(True, FULL.format("long " * 20)), episode(False, "> look", metrics=metrics, lost=True)))
    analyzer.add(group(episode(False, "", kind="tw-cooking", difficulty="hard", max_score=1, score=0)))
    analyzer.add(group(AnalyzedRollout(None, {}, {}, {}, said("x"), failed=True)))
    found = tables(analyzer)
    overview = values(found["games"])
    assert (overview["episodes"], overview["won"], overview["lost"], overview["cut off"]) == (3, 1, 1, 1)
    assert overview["failed episodes"] == 1
    assert overview["wins per 1000 episodes"] == pytest.approx(1000 / 3)
    assert overview["share of points reached"] == pytest.approx(0.5)
    assert overview["turns a won game takes, in lengths of its plan"] == 1.5
    assert overview["different games"] == 2
    assert [row[0] for row in found["difficulties"].rows] == ["easy", "hard"]
    assert found["kinds"].rows[0][:4] == ("quest-fetch", 2, 1, 0.5)
    assert {row[0]: row[1] for row in found["rewards"].rows} == {"one reward": 1, "several rewards": 2}
    replies = {row[0]: (row[2], row[3]) for row in found["replies"].rows}
    assert replies["with a playable command"] == (2, 3)
    assert replies["in full form: thinking, memory, tool call"] == (1, 3)
    assert replies["malformed empty"] == (1, 3)
    assert replies["commands without effect"] == (2, 17)
    assert values(found["correlations"])["thinking and winning"] == pytest.approx(1.0)
    assert "vrcli" not in found
    assert "memory" not in found


def test_games_turn_by_turn() -> None:
    analyzer = TextWorldAnalyzer()
    good, bad = FULL.format("a long thought"), "> look"
    analyzer.add(
        turn(
            0,
            [
                alternative(good, executed=True, vrcli=0.9, vrcli_improvement=1.5, scoring_requests=3.0),
                alternative(bad, executed=False, vrcli=0.0, vrcli_improvement=-1.0),
            ],
            last=False,
        )
    )
    analyzer.add(turn(0, [alternative(good, executed=True)], last=False, episode="other"))
    end = {"memory_hits": 2.0, "memory_searches": 2.0, "memory_similarity": 0.5, "memory_used": 0.25}
    analyzer.add(
        turn(
            1,
            [
                alternative(bad, executed=False),
                alternative(
                    good,
                    executed=True,
                    end=True,
                    vrcli=0.5,
                    vrcli_improvement=0.5,
                    vrcli_control_improvement=0.2,
                    vrcli_control=0.5,
                    scoring_requests=5.0,
                    **end,
                ),
            ],
            last=True,
        )
    )
    found = tables(analyzer)
    assert values(found["games"])["episodes"] == 1
    assert values(found["games"])["won"] == 1
    predictions = values(found["vrcli"])
    assert predictions["replies scored"] == 3
    assert predictions["share of zero"] == pytest.approx(1 / 3)
    assert (predictions["smallest above zero"], predictions["largest"]) == (0.5, 0.9)
    assert predictions["mean of those above zero"] == pytest.approx(0.7)
    assert predictions["share of predictions better than the control"] == 1.0
    assert predictions["control: share above zero"] == 1.0
    assert predictions["scoring requests a turn"] == 4.0
    memory = values(found["memory"])
    assert memory["memories found a search"] == 2.0
    assert memory["share of what is found that the reply takes up"] == 0.25
    replies = {row[0]: (row[2], row[3]) for row in found["replies"].rows}
    assert replies["in full form: thinking, memory, tool call"] == (3, 5)
    assert replies["with a valid memory"] == (3, 5)
    assert replies["memory: missing"] == (2, 5)


def test_an_episode_that_ends_without_an_end_has_failed() -> None:
    analyzer = TextWorldAnalyzer()
    analyzer.add(turn(0, [alternative("> look", executed=True)], last=False))
    analyzer.add(turn(1, [AnalyzedRollout(None, {}, {}, {}, [], failed=True)], last=True))
    assert values(tables(analyzer)["games"])["failed episodes"] == 1
    assert not analyzer._open


def test_faults_of_alternatives_are_counted_by_kind() -> None:
    analyzer = TextWorldAnalyzer()
    rollout = alternative("nothing", executed=True, end=False, malformed=1.0)
    rollout.info["fault"] = "malformed_bad_tool_call"  # type: ignore[index]
    analyzer.add(turn(0, [rollout, alternative("> look", executed=False)], last=True))
    replies = {row[0]: (row[2], row[3]) for row in tables(analyzer)["replies"].rows}
    assert replies["malformed bad tool call"] == (1, 2)
    assert replies["with a playable command"] == (1, 2)
    assert replies["commands without effect"] == (0, 5)


def test_nothing_is_a_report_too() -> None:
    analyzer = TextWorldAnalyzer()
    assert values(tables(analyzer)["games"])["wins per 1000 episodes"] is None
    assert list(analyzer.charts()) == []


ODD: list[dict[str, Any]] = [
    {"won": "yes"},
    {"won": True, "score": "high", "max_score": None, "steps": float("nan"), "plan_length": [], "kind": 7, "game": {}},
    {"won": True, "score": math.inf, "max_score": -3, "lost": "no"},
    {"executed": True, "won": False, "score": True},
]


@pytest.mark.parametrize("odd", ODD)
def test_odd_files_do_no_harm(odd: dict[str, Any]) -> None:
    analyzer = TextWorldAnalyzer()
    messages = [{"role": "assistant", "content": None}, {"role": "assistant", "content": [{"type": "text"}]}, {}]
    rollout = AnalyzedRollout(0.0, {"textworld_vrcli": "x"}, {"vrcli_zero": None, "steps": "x"}, odd, messages)
    analyzer.add(group(rollout))
    analyzer.add(turn(0, [rollout], last=True))
    tables = list(analyzer.tables())
    assert tables
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
    list(analyzer.charts())


def test_thinking_is_what_stands_between_the_tags() -> None:
    assert reply_of({"content": "<think> four </think>> look"}).thinking == 4
    assert reply_of({"content": "> look"}).thinking == 0
    assert reply_of({"content": "> look", "reasoning": "12345"}).thinking == 5
    assert reply_of({"content": FULL.format("x")}).full_form
    assert reply_of({"content": "<memory>short</memory>"}).memory == "too_short"


def made(won: bool, number: int = 0) -> Game:
    found = game_of(episode(won, kind=f"kind-{number}"))
    assert found is not None
    return found


@pytest.mark.parametrize("count", [1, BINS, BINS + 1, 1000, 1001])
def test_stretches_of_time_add_up(count: int) -> None:
    time = OverTime()
    for number in range(count):
        time.add(made(number % 4 == 0))
    assert len(time.stretches) <= BINS
    assert sum(stretch.episodes for stretch in time.stretches) == count
    assert sum(stretch.won for stretch in time.stretches) == math.ceil(count / 4)
    assert {stretch.episodes for stretch in time.stretches[:-1]} <= {time.length}


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ByName()
    for number in range(2 * NAMES):
        names.add(str(number), made(True))
    assert len(names) == NAMES + 1
    assert sum(outcomes.episodes for outcomes in names.values()) == 2 * NAMES
    monkeypatch.setattr("atropos_textworld.analysis.counting.DISTINCT", 10)
    distinct = Distinct()
    for number in range(50):
        distinct.add(str(number))
    assert len(distinct) == 10
    assert distinct.full
    analyzer = TextWorldAnalyzer()
    for number in range(OPEN_EPISODES + 50):
        analyzer.add(turn(0, [alternative("> look", executed=True)], last=False, episode=str(number)))
    assert len(analyzer._open) == OPEN_EPISODES


def test_charts_can_be_drawn() -> None:
    analyzer = TextWorldAnalyzer()
    for number in range(60):
        more = {"difficulty": "hard" if number % 2 else "easy", "kind": f"kind-{number % 3}"}
        analyzer.add(group(episode(number % 3 == 0, FULL.format("word " * number), **more)))
    charts = {chart.name: chart for chart in analyzer.charts()}
    assert {"win-rate", "score", "steps", "thinking", "won-by-difficulty", "won-by-kind", "won-by-thinking"} <= set(
        charts
    )
    assert charts["win-rate"].lines[0].xs[-1] == 60
    assert dict(charts["won-by-kind"].categories)["kind-0"] == 1.0


def test_other_environments_are_left_alone() -> None:
    assert atropos_analyze("gsm8k") is None
    assert isinstance(atropos_analyze("textworld"), TextWorldAnalyzer)
