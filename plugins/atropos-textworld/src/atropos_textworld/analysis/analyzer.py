"""Counts the groups of a TextWorld run."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from atropos_cli.sdk.analysis import (
    AnalysisTable,
    AnalyzedGroup,
    AnalyzedRollout,
    Analyzer,
    Chart,
    Correlation,
    Moments,
    Series,
)
from atropos_textworld.analysis.counting import ByLength, ByName, Outcomes, OverTime
from atropos_textworld.analysis.reading import Game, Reply, game_of, number, numbers, replies_of
from atropos_textworld.replies import FAULTS

OPEN_EPISODES = 1024
"""Episodes whose turns are gathered at the same time."""

_EPISODE_MEMORY = (
    "memory_notes",
    "memory_repeated",
    "memory_searches",
    "memory_hits",
    "memory_hit_rate",
    "memory_similarity",
    "memory_used",
    "memory_summaries",
)
_TURN = ("alternatives_distinct", "scoring_requests", "scoring_tokens", "vrcli_noise")


@dataclass(slots=True)
class Predictions:
    """VR-CLI over replies that were scored."""

    scored: int = 0
    zero: int = 0
    value: Series = field(default_factory=Series)
    nonzero: Moments = field(default_factory=Moments)
    improvement: Series = field(default_factory=Series)
    control: Series = field(default_factory=Series)
    control_rewarded: int = 0
    beats_control: int = 0

    def add(self, rollout: AnalyzedRollout) -> None:
        metrics = numbers(rollout.metrics)
        value = number(rollout.rewards.get("textworld_vrcli"))
        if value is None or "vrcli_zero" not in metrics:
            return
        self.scored += 1
        self.value.add(value)
        if value:
            self.nonzero.add(value)
        else:
            self.zero += 1
        improvement, control = metrics.get("vrcli_improvement"), metrics.get("vrcli_control_improvement")
        if improvement is not None:
            self.improvement.add(improvement)
        if control is not None:
            self.control.add(control)
            self.control_rewarded += metrics.get("vrcli_control", 0.0) > 0
            self.beats_control += improvement is not None and improvement > control


@dataclass(slots=True)
class Writing:
    """Form of the replies. faults: what kept a reply from holding a command, or its command from being played."""

    replies: int = 0
    full_form: int = 0
    predictions: int = 0
    asked_predictions: int = 0
    memory: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    commands: int = 0
    without_effect: int = 0
    thinking: Series = field(default_factory=Series)

    def add(self, reply: Reply) -> None:
        self.replies += 1
        self.full_form += reply.full_form
        self.memory[reply.memory] += 1
        self.thinking.add(reply.thinking)


class TextWorldAnalyzer(Analyzer):
    """Both forms of groups, also mixed in one input."""

    def __init__(self) -> None:
        self.all = Outcomes()
        self.failed = 0
        self.kinds = ByName()
        self.difficulties = ByName()
        self.density = ByName()
        self.time = OverTime()
        self.score = Series()
        self.steps = Series()
        self.by_thinking = ByLength()
        self.writing = Writing()
        self.predictions = Predictions()
        self.memory = {name: Moments() for name in _EPISODE_MEMORY}
        self.turn = {name: Moments() for name in _TURN}
        self.correlations: dict[str, Correlation] = {}
        self._open: OrderedDict[str, Moments] = OrderedDict()

    def add(self, group: AnalyzedGroup) -> None:
        if group.turn is None:
            for rollout in group.rollouts:
                self._episode(rollout)
        else:
            self._turn(group)

    def _episode(self, rollout: AnalyzedRollout) -> None:
        """A rollout that is a whole game."""
        game = game_of(rollout)
        if game is None:
            self.failed += 1
            return
        thinking = Moments()
        for reply in replies_of(rollout.messages):
            self.writing.add(reply)
            thinking.add(reply.thinking)
        for fault in FAULTS:
            self.writing.faults[f"malformed_{fault}"] += int(game.metrics.get(f"malformed_{fault}", 0))
        self._refusals(game)
        self._finish(game, thinking)

    def _turn(self, group: AnalyzedGroup) -> None:
        """A group of alternatives for one reply."""
        key = group.episode_id or group.group_id
        thinking = self._open.pop(key, None) or Moments()
        game: Game | None = None
        for rollout in group.rollouts:
            if rollout.failed:
                continue
            replies = replies_of(rollout.messages[-1:])
            self._alternative(rollout, replies)
            if rollout.info.get("executed") is True:
                for reply in replies:
                    thinking.add(reply.thinking)
                for name, moments in self.turn.items():
                    _add(moments, rollout.metrics.get(name))
                game = game_of(rollout) or game
        if game is not None:
            self._refusals(game, counted=True)
            self._finish(game, thinking)
        elif group.last:
            self.failed += 1
        else:
            self._open[key] = thinking
            if len(self._open) > OPEN_EPISODES:
                self._open.popitem(last=False)

    def _alternative(self, rollout: AnalyzedRollout, replies: list[Reply]) -> None:
        for reply in replies:
            self.writing.add(reply)
            if rollout.reward is not None:
                self._correlate("thinking and reward of a reply", reply.thinking, rollout.reward)
        fault = rollout.info.get("fault")
        if isinstance(fault, str):
            self.writing.faults[fault[:100]] += 1
        given = number(rollout.metrics.get("prediction_given"))
        if given is not None:
            self.writing.asked_predictions += 1
            self.writing.predictions += given > 0
        self.predictions.add(rollout)

    def _refusals(self, game: Game, *, counted: bool = False) -> None:
        """What the game's own counts say. counted: faults were counted reply by reply already."""
        wasted = game.metrics.get("malformed", 0) + game.metrics.get("refused", 0)
        self.writing.commands += max(0, game.steps - int(wasted))
        self.writing.without_effect += int(game.metrics.get("invalid_commands", 0))
        if not counted:
            for name, value in game.metrics.items():
                if name.startswith("refused_"):
                    self.writing.faults[name[:100]] += int(value)

    def _finish(self, game: Game, thinking: Moments) -> None:
        """A game is over; thinking: of the replies that were played on."""
        self.all.add(game)
        self.kinds.add(game.kind, game)
        self.difficulties.add(game.difficulty, game)
        self.density.add("one reward" if game.sparse else "several rewards", game)
        self.time.add(game)
        self.score.add(game.score)
        self.steps.add(game.steps)
        for name, moments in self.memory.items():
            _add(moments, game.metrics.get(name))
        if thinking.n:
            self.by_thinking.add(thinking.mean, game)
            self._correlate("thinking and winning", thinking.mean, game.won)
            self._correlate("thinking and score", thinking.mean, game.score)
        self._correlate("length of the plan and winning", game.plan, game.won)
        if "memory_similarity" in game.metrics:
            self._correlate("memory similarity and winning", game.metrics["memory_similarity"], game.won)
        if "memory_used" in game.metrics:
            self._correlate("memory use and winning", game.metrics["memory_used"], game.won)

    def _correlate(self, name: str, x: float, y: float) -> None:
        self.correlations.setdefault(name, Correlation()).add(x, y)

    def tables(self) -> Iterable[AnalysisTable]:
        from atropos_textworld.analysis.report import tables

        return tables(self)

    def charts(self) -> Iterable[Chart]:
        from atropos_textworld.analysis.report import charts

        return charts(self)


def _add(moments: Moments, value: object) -> None:
    found = number(value)
    if found is not None:
        moments.add(found)
