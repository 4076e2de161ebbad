"""The tables and charts of a TextWorld run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from atropos_cli.sdk.analysis import AnalysisTable, Chart, Line, Moments, Series, histogram
from atropos_textworld.analysis.counting import ByName, Outcomes
from atropos_textworld.games.spec import DIFFICULTIES

if TYPE_CHECKING:
    from atropos_textworld.analysis.analyzer import TextWorldAnalyzer

Row = tuple[str | int | float | None, ...]

_OUTCOMES = ("episodes", "games", "won", "lost", "cut off", "score", "steps", "plan", "steps / plan when won")
_SHARES = ("won", "lost", "cut off", "score")
_MEMORY = {
    "memory_notes": "memories written an episode",
    "memory_repeated": "of them said before",
    "memory_searches": "searches an episode",
    "memory_hits": "memories found a search",
    "memory_hit_rate": "share of searches that find any",
    "memory_similarity": "similarity of what is found",
    "memory_used": "share of what is found that the reply takes up",
    "memory_summaries": "memories asked for apart, an episode",
}


def tables(found: TextWorldAnalyzer) -> Iterator[AnalysisTable]:
    """Everything that was seen, most general first."""
    yield _overview(found)
    if not found.all.episodes:
        return
    yield _by_name("difficulties", "Difficulties", "difficulty", found.difficulties)
    yield _by_name("kinds", "Kinds of games", "kind", found.kinds)
    yield _by_name("rewards", "Sparse and dense rewards", "game has", found.density)
    yield _over_time(found)
    yield _replies(found)
    if found.predictions.scored:
        yield _predictions(found)
    if found.memory["memory_searches"].n:
        yield _memory(found)
    rows: list[Row] = [(name, pair.value, pair.n) for name, pair in found.correlations.items() if pair.n > 1]
    if rows:
        note = "Pearson's r; - where one side does not vary. Thinking is its length in characters."
        yield AnalysisTable("correlations", "Correlations", ("", "r", "pairs"), rows, note=note)


def _overview(found: TextWorldAnalyzer) -> AnalysisTable:
    games = found.all
    at_least = " (at least)" if games.games.full else ""
    rows: list[Row] = [
        ("episodes", games.episodes),
        ("failed episodes", found.failed),
        ("won", games.won),
        ("lost", games.lost),
        ("cut off", games.cut_off),
        ("wins per 1000 episodes", None if games.win_rate is None else 1000 * games.win_rate),
        ("share of points reached", _mean(games.score)),
        ("turns an episode", _mean(games.steps)),
        ("turns a won game takes, in lengths of its plan", _mean(games.steps_of_won)),
        (f"different games{at_least}", len(games.games)),
        ("kinds of games", len(found.kinds)),
    ]
    return AnalysisTable("games", "Text games", ("", "value"), rows)


def _by_name(name: str, title: str, first: str, outcomes: ByName) -> AnalysisTable:
    def order(entry: tuple[str, Outcomes]) -> tuple[int, str]:
        known = entry[0] in DIFFICULTIES
        return (DIFFICULTIES.index(entry[0]) if known else len(DIFFICULTIES), entry[0])

    rows = [(label, *_outcome_row(outcome)) for label, outcome in sorted(outcomes.items(), key=order)]
    return AnalysisTable(name, title, (first, *_OUTCOMES), rows, shares=_SHARES)


def _outcome_row(outcome: Outcomes) -> Row:
    n = outcome.episodes
    return (
        n,
        len(outcome.games),
        outcome.won / n,
        outcome.lost / n,
        outcome.cut_off / n,
        _mean(outcome.score),
        _mean(outcome.steps),
        _mean(outcome.plan),
        _mean(outcome.steps_of_won),
    )


def _over_time(found: TextWorldAnalyzer) -> AnalysisTable:
    rows: list[Row] = []
    first = 1
    for stretch in found.time.stretches:
        last = first + stretch.episodes - 1
        share = stretch.score / stretch.episodes
        rows.append((f"{first}-{last}", stretch.episodes, stretch.win_rate, 1000 * stretch.win_rate, share))
        first = last + 1
    columns = ("episodes", "count", "won", "wins per 1000", "score")
    return AnalysisTable("over_time", "Over time, in the order of the file", columns, rows, shares=("won", "score"))


def _replies(found: TextWorldAnalyzer) -> AnalysisTable:
    writing = found.writing
    faults = sum(writing.faults.values())
    rows = [
        _share("with a playable command", writing.replies - faults, writing.replies),
        _share("in full form: thinking, memory, tool call", writing.full_form, writing.replies),
        _share("with a valid memory", writing.memory["ok"], writing.replies),
        _share("with a prediction", writing.predictions, writing.asked_predictions),
        _share("commands without effect", writing.without_effect, writing.commands),
    ]
    kinds = [(f"memory: {status}", count) for status, count in writing.memory.most_common() if status != "ok"]
    kinds += writing.faults.most_common()
    rows = [row for row in rows if row[3]]
    rows += [_share(name.replace("_", " "), count, writing.replies) for name, count in kinds if count]
    thinking = writing.thinking
    note = ""
    if thinking.n:
        middle = thinking.quantiles([0.05, 0.5, 0.95])
        note = "characters of thinking a reply: mean {:.0f}; 5 %, half and 95 % have at most {:.0f}, {:.0f}, {:.0f}"
        note = note.format(thinking.mean, *middle)
    return AnalysisTable("replies", "Replies", ("", "share", "count", "of"), rows, shares=("share",), note=note)


def _predictions(found: TextWorldAnalyzer) -> AnalysisTable:
    seen = found.predictions
    rows: list[Row] = [
        ("replies scored", seen.scored),
        ("share of zero", seen.zero / seen.scored),
        ("mean", _mean(seen.value)),
        ("mean of those above zero", _mean(seen.nonzero)),
        ("smallest above zero", seen.nonzero.low if seen.nonzero.n else None),
        ("largest", seen.nonzero.high if seen.nonzero.n else None),
        ("improvement, per cent, mean", _mean(seen.improvement)),
        ("improvement, per cent, median", _median(seen.improvement)),
        ("control: improvement, per cent, mean", _mean(seen.control)),
        ("control: improvement, per cent, median", _median(seen.control)),
        ("control: share above zero", seen.control_rewarded / seen.control.n if seen.control.n else None),
        (
            "share of predictions better than the control",
            seen.beats_control / seen.control.n if seen.control.n else None,
        ),
        (
            "noise of the scorer, per cent, largest",
            found.turn["vrcli_noise"].high if found.turn["vrcli_noise"].n else None,
        ),
        ("scoring requests a turn", _mean(found.turn["scoring_requests"])),
        ("scored tokens a turn", _mean(found.turn["scoring_tokens"])),
    ]
    return AnalysisTable("vrcli", "Predictions (VR-CLI)", ("", "value"), [row for row in rows if row[1] is not None])


def _memory(found: TextWorldAnalyzer) -> AnalysisTable:
    rows: list[Row] = [
        (title, _mean(found.memory[name]), found.memory[name].n)
        for name, title in _MEMORY.items()
        if found.memory[name].n
    ]
    return AnalysisTable("memory", "Memory", ("", "mean", "episodes"), rows)


def charts(found: TextWorldAnalyzer) -> Iterator[Chart]:
    """Pictures of what there is to see."""
    stretches = found.time.stretches
    if len(stretches) > 1:
        ends: list[float] = []
        for stretch in stretches:
            ends.append((ends[-1] if ends else 0.0) + stretch.episodes)
        rate = Line("win rate", tuple(ends), tuple(s.win_rate for s in stretches), tuple(s.stderr for s in stretches))
        score = Line("score", tuple(ends), tuple(s.score / s.episodes for s in stretches))
        yield Chart("win-rate", "Wins and points over time", "episodes", "share", lines=(rate, score))
    yield from _histogram("score", "Share of points reached", "score", found.score, "episodes")
    yield from _histogram("steps", "Turns of an episode", "turns", found.steps, "episodes")
    yield from _histogram("vrcli", "VR-CLI reward", "reward", found.predictions.value, "replies")
    yield from _histogram(
        "vrcli-improvement", "VR-CLI improvement", "per cent", found.predictions.improvement, "replies"
    )
    yield from _histogram("thinking", "Thinking of a reply", "characters", found.writing.thinking, "replies")
    for name, title, outcomes in (
        ("won-by-difficulty", "Won, by difficulty", found.difficulties),
        ("won-by-kind", "Won, by kind of game", found.kinds),
    ):
        if len(outcomes) > 1:
            known = [name for name in DIFFICULTIES if name in outcomes] or sorted(outcomes)
            bars = tuple((label, outcomes[label].won / outcomes[label].episodes) for label in known)
            yield Chart(name, title, "", "share of episodes", categories=bars)
    points = found.by_thinking.points()
    if len(points) > 1:
        xs = tuple(length for length, _ in points)
        line = Line("won", xs, tuple(s.win_rate for _, s in points), tuple(s.stderr for _, s in points))
        yield Chart("won-by-thinking", "Won, by length of thinking", "characters a reply", "share", lines=(line,))


def _histogram(name: str, title: str, label: str, series: Series, what: str) -> Iterator[Chart]:
    bars = histogram(series.sample)
    if bars:
        yield Chart(name, title, label, what, bars=bars)


def _share(label: str, count: int, of: int) -> Row:
    return (label, count / of if of else None, count, of)


def _mean(moments: Moments) -> float | None:
    return moments.mean if moments.n else None


def _median(series: Series) -> float | None:
    return series.quantiles([0.5])[0] if series.n else None
