"""Statistics of one environment, record by record. Rewards of two environments never meet here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from atropos_cli.sdk import split_thinking
from atropos_cli.sdk.analysis import Correlation, Moments, Series, Threshold, add_tally, expected_best_of_k, tally_state
from atropos_cli.sdk.data import FORMATS, Record, StoredRollout, is_value
from atropos_view.analysis.differences import Differences
from atropos_view.analysis.groups import GroupTally, Retention
from atropos_view.analysis.plugged import Plugged

NAMES = 200
"""Names of rewards, metrics, kinds of task, or turns that are told apart; what comes later is counted as others."""

OTHERS = "(others)"


class Table(dict[Any, Any]):
    """Statistics by name, up to NAMES names."""

    def __init__(self, kind: type[Moments]) -> None:
        super().__init__()
        self._kind = kind
        self.left_out = 0

    def add(self, name: Any, value: float) -> None:
        found = self.get(name)
        if found is None:
            if len(self) >= NAMES:
                self.left_out += 1
                return
            found = self[name] = self._kind()
        found.add(value)

    def state(self) -> list[Any]:
        """The statistics by name, for `absorb`."""
        rows = [[name, moments_state(moments)] for name, moments in self.items()]
        return [self.left_out, rows]

    def absorb(self, state: list[Any]) -> None:
        """Take in the statistics of other rollouts."""
        left_out, rows = state
        self.left_out += left_out
        for name, told in rows:
            if name not in self and len(self) >= NAMES:
                self.left_out += int((told["moments"] if isinstance(told, dict) else told)[0])
                continue
            absorb_moments(self.setdefault(name, self._kind()), told)

    def as_json(self) -> dict[str, Any]:
        return {str(name): moments.as_json() for name, moments in self.items()}


def moments_state(moments: Moments) -> Any:
    """Moments, with their sample where they have one, as JSON."""
    return moments.whole_state() if isinstance(moments, Series) else moments.state()


def absorb_moments(moments: Moments, state: Any) -> None:
    """Take in what `moments_state` gave."""
    if isinstance(moments, Series):
        moments.absorb_whole(state)
    else:
        moments.absorb(state)


_COUNTS = (
    *("records", "rollouts", "scored", "failed", "non_finite", "truncated", "failures", "stop_reasons"),
    *("finish_reasons", "replies", "labels", "own_fields", "group_size", "turn_groups"),
)
_SERIES = ("reward", "characters", "tokens", "turns")
_PARTS = ("rewards", "metrics", "task_names", "turn_rewards", "length_and_reward", "groups", "differences")


class Environment:
    """Everything that is counted for one environment."""

    def __init__(self, name: str, thresholds: Sequence[Threshold]) -> None:
        self.name = name
        self.records = 0
        self.rollouts = 0
        self.scored = 0
        self.failed = 0
        self.non_finite = 0
        self.truncated = 0
        self.failures: Counter[str] = Counter()
        self.stop_reasons: Counter[str] = Counter()
        self.finish_reasons: Counter[str] = Counter()
        self.replies: Counter[str] = Counter()
        self.labels: Counter[str] = Counter()
        self.own_fields: Counter[str] = Counter()
        self.reward = Series()
        self.rewards = Table(Series)
        self.metrics = Table(Series)
        self.task_names = Table(Moments)
        self.characters = Series()
        self.tokens = Series()
        self.turns = Series()
        self.length_and_reward = Correlation()
        self.groups = GroupTally()
        self.group_size: Counter[int] = Counter()
        self.retention = [Retention(threshold) for threshold in thresholds]
        self.best_of: dict[int, Moments] = {}
        self.turn_rewards = Table(Moments)
        self.lost_groups = 0
        self.lost_rollouts = 0
        self.turn_groups = 0
        self.row_tasks = 0
        self.differences = Differences()
        self.plugged: Plugged | None = None

    def add(self, record: Record) -> None:
        """A record and its rollouts."""
        self.records += 1
        self.turn_groups += record.turn is not None
        self.non_finite += len(record.non_finite)
        rewards: list[float] = []
        for rollout in record.rollouts:
            self._rollout(record, rollout)
            if rollout.score is not None and rollout.failure is None:
                rewards.append(rollout.score)
        if is_group(record):
            self.group_size[len(record.rollouts)] += 1
            self.add_group(rewards)
        else:
            for kept in self.retention:
                for reward in rewards:
                    kept.add_row(reward)
        if record.turn is not None and rewards:
            self.turn_rewards.add(record.turn, sum(rewards) / len(rewards))

    def state(self) -> dict[str, Any]:
        """The counts so far, for `absorb`; without those of plugins."""
        return {
            "counts": tally_state(self, *_COUNTS),
            "series": {name: getattr(self, name).whole_state() for name in _SERIES},
            "parts": {name: getattr(self, name).state() for name in _PARTS},
            "retention": [kept.state() for kept in self.retention],
            "best_of": [[k, moments.state()] for k, moments in self.best_of.items()],
        }

    def absorb(self, state: dict[str, Any]) -> None:
        """Add the counts of other records."""
        add_tally(self, state["counts"])
        for name in _SERIES:
            getattr(self, name).absorb_whole(state["series"][name])
        for name in _PARTS:
            getattr(self, name).absorb(state["parts"][name])
        for kept, told in zip(self.retention, state["retention"], strict=True):
            kept.absorb(told)
        for k, moments in state["best_of"]:
            self.best_of.setdefault(k, Moments()).absorb(moments)
        if self.plugged is not None:
            self.plugged.leave_out("it cannot put shards together: give the command without --on")

    def lose(self, record: Record) -> None:
        """A task whose groups were never written, since all of it failed."""
        self.lost_groups += 1
        self.lost_rollouts += len(record.rollouts)
        for rollout in record.rollouts:
            self._failure(rollout.failure or {})

    def add_row_task(self, scored: int, worst: float | None, best: float | None) -> None:
        """A task whose rollouts stood in rows of their own: they make a group."""
        self.row_tasks += 1
        if best is None or worst is None:
            return
        self.groups.add(scored, worst, best)
        for kept in self.retention:
            kept.add_best(best)

    def add_group(self, rewards: Sequence[float]) -> None:
        """The rewards of a group, for the statistics over groups."""
        if not rewards:
            return
        self.groups.add(len(rewards), min(rewards), max(rewards))
        for kept in self.retention:
            kept.add(sum(map(kept.threshold.reached, rewards)), len(rewards))
        k = 1
        while k <= len(rewards):
            self.best_of.setdefault(k, Moments()).add(expected_best_of_k(rewards, k))
            k *= 2

    def _rollout(self, record: Record, rollout: StoredRollout) -> None:
        self.rollouts += 1
        if rollout.stop_reason is not None:
            self.stop_reasons[_name(rollout.stop_reason, self.stop_reasons)] += 1
        if rollout.finish_reason is not None:
            self.finish_reasons[_name(rollout.finish_reason, self.finish_reasons)] += 1
        if rollout.truncated:
            self.truncated += 1
        if rollout.label is not None:
            self.labels[rollout.label] += 1
        if rollout.failure is not None:
            self.failed += 1
            self._failure(rollout.failure)
        else:
            self._lengths(rollout)
            if rollout.score is not None:
                self.scored += 1
                self.reward.add(rollout.score)
                if record.task_name is not None:
                    self.task_names.add(record.task_name, rollout.score)
        for name, value in rollout.rewards.items():
            if is_value(value):
                self.rewards.add(name, value)
        metrics = rollout.raw.get("metrics")
        if isinstance(metrics, dict):
            for name, value in metrics.items():
                if is_value(value):
                    self.metrics.add(name, float(value))

    def _failure(self, failure: dict[str, Any]) -> None:
        reason = f"{failure.get('stage', '?')}:{failure.get('type', '?')}"
        self.failures[_name(reason, self.failures)] += 1

    def _lengths(self, rollout: StoredRollout) -> None:
        """Lengths and the look of the reply, of rollouts that did not fail."""
        text = rollout.completion_text
        self.characters.add(len(text))
        if rollout.score is not None:
            self.length_and_reward.add(len(text), rollout.score)
        tokens = rollout.completion_tokens
        if tokens is not None:
            self.tokens.add(tokens)
        self.turns.add(sum(message["role"] == "assistant" for message in rollout.completion))
        reply = rollout.reply
        last = rollout.text
        if reply is None or (not last and not reply.get("tool_calls")):
            if rollout.messages:
                self.replies["empty"] += 1
            return
        if not reply.get("tool_calls") and "<tool_call>" in last:
            self.replies["tool_call_in_text"] += 1
        if split_thinking(last)[1] is None:
            self.replies["unclosed_thinking"] += 1


def is_group(record: Record) -> bool:
    """Does the record itself hold a group? Rows of one rollout are grouped by their task."""
    return FORMATS[record.format].group or len(record.rollouts) > 1


def _name(name: str, counter: Counter[str]) -> str:
    return name if name in counter or len(counter) < NAMES else OTHERS
