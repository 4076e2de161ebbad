"""Running totals of a run, over all its sessions, in constant memory (but for the tasks that failed as a whole)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.finish import is_known
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.rollout import Rollout
from atropos_cli.rollout.advantages import ZERO_SPREAD, spread
from atropos_cli.rollout.baselines import Baselines
from atropos_cli.stats.streaming import Moments

Lost = tuple[tuple[str, int], ...]
"""What became of a task that failed as a whole: "stage:type" and how many rollouts."""

_NUMBERS = (
    "tasks",
    "written_rollouts",
    "written_failed",
    "zero_std_groups",
    "spread_groups",
    "prompt_tokens",
    "completion_tokens",
)
_COUNTERS = ("failures", "stop_reasons", "counts")
_LATER_COUNTERS = ("parse_failures",)
"""Not in the files of earlier versions, whose runs had none."""
_MEANS = ("reward", "rewards", "metrics")


@dataclass(slots=True)
class EnvironmentTotals:
    """What a mixture's member has in the groups file. spread_groups: groups whose rewards differ."""

    tasks: int = 0
    rollouts: int = 0
    rollouts_failed: int = 0
    spread_groups: int = 0
    reward_sum: float = 0.0

    def add(self, group: ScoredGroup, *, spreads: bool) -> None:
        """A group of it."""
        rewards = [rollout.reward for rollout in group.rollouts if rollout.reward is not None]
        self.tasks += group.last
        self.rollouts += len(group.rollouts)
        self.rollouts_failed += sum(rollout.failure is not None for rollout in group.rollouts)
        self.spread_groups += spreads
        self.reward_sum += math.fsum(rewards)

    def told(self) -> JsonDict:
        """As a summary has it. The mean is over the rollouts that did not fail."""
        scored = self.rollouts - self.rollouts_failed
        data: JsonDict = {key: value for key, value in asdict(self).items() if key != "reward_sum"}
        return data | {"reward_mean": self.reward_sum / scored if scored else None}


class Totals:
    """Counts and means over the groups of a run, and the tasks that have none because all their rollouts failed.

    A task that failed counts until its groups are written: what a later session tries again replaces it.
    """

    def __init__(self) -> None:
        self.tasks = 0
        self.written_rollouts = 0
        self.written_failed = 0
        self.zero_std_groups = 0
        self.spread_groups = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.failures: Counter[str] = Counter()
        self.stop_reasons: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.parse_failures: Counter[str] = Counter()
        self.reward = Moments()
        self.rewards: dict[str, Moments] = {}
        self.metrics: dict[str, Moments] = {}
        self.baselines = Baselines()
        self.environments: dict[str, EnvironmentTotals] = {}
        self.lost: dict[int, Lost] = {}
        self._lost_rollouts = 0
        self._kinds: dict[Lost, Lost] = {}

    def lose(self, index: int, kinds: Sequence[str]) -> None:
        """A task that was not written, since nothing in it succeeded. kinds: "stage:type" of each rollout."""
        self._found(index)
        lost = tuple(Counter(kinds).items())
        self.lost[index] = self._kinds.setdefault(lost, lost)
        self._lost_rollouts += len(kinds)

    def write(self, index: int, groups: Sequence[ScoredGroup]) -> None:
        """All groups of a task, which are now in the groups file."""
        self._found(index)
        for group in groups:
            self.add(group)

    def _found(self, index: int) -> None:
        for _, count in self.lost.pop(index, ()):
            self._lost_rollouts -= count

    def add(self, group: ScoredGroup) -> None:
        """A group that is in the groups file."""
        if group.last:
            self.tasks += 1
        self.written_rollouts += len(group.rollouts)
        self.baselines.add(group)
        rewards = []
        for rollout in group.rollouts:
            usage = rollout.usage
            self.prompt_tokens += usage.prompt_tokens or 0
            self.completion_tokens += usage.completion_tokens or 0
            if rollout.stop_reason is not None:
                self.stop_reasons[rollout.stop_reason] += 1
            self.parse_failures.update(rollout.parse_failures or {})
            if rollout.failure is not None:
                self.written_failed += 1
                self.failures[f"{rollout.failure.stage}:{rollout.failure.type}"] += 1
            else:
                self._look_at_reply(rollout)
            if rollout.reward is not None:
                rewards.append(rollout.reward)
                self.reward.add(rollout.reward)
            for name, value in rollout.rewards.items():
                self.rewards.setdefault(name, Moments()).add(value)
            for name, value in rollout.metrics.items():
                self.metrics.setdefault(name, Moments()).add(value)
        spreads = len(rewards) > 1 and spread(rewards) > ZERO_SPREAD
        if spreads:
            self.spread_groups += 1
        elif len(rewards) > 1:
            self.zero_std_groups += 1
        self.environments.setdefault(group.env, EnvironmentTotals()).add(group, spreads=spreads)

    def _look_at_reply(self, rollout: Rollout) -> None:
        """Count what a reader of the summary should know of: nothing said, or a call the server did not parse."""
        reply = rollout.completion
        if reply is None:
            return
        if reply.finish_reason is not None and not is_known(reply.finish_reason):
            self.counts["unknown_finish_reasons"] += 1
        if reply.tool_calls:
            return
        text = reply.text
        if not text:
            self.counts["empty_replies"] += 1
        elif "<tool_call>" in text:
            self.counts["tool_calls_in_text"] += 1

    @property
    def rollouts(self) -> int:
        return self.written_rollouts + self._lost_rollouts

    def rollouts_without(self, index: int) -> int:
        """All but those of a task that failed as a whole, which is tried again."""
        return self.rollouts - sum(count for _, count in self.lost.get(index, ()))

    @property
    def rollouts_failed(self) -> int:
        return self.written_failed + self._lost_rollouts

    @property
    def failed(self) -> Counter[str]:
        """Failed rollouts by "stage:type", those of lost tasks among them."""
        found = Counter(self.failures)
        for lost in self.lost.values():
            for kind, count in lost:
                found[kind] += count
        return found

    def too_many_failed(self, most: float) -> bool:
        """Whether more than this part of the rollouts failed, or all."""
        nothing = 0 < self.rollouts == self.rollouts_failed
        return nothing or self.rollouts_failed / max(1, self.rollouts) > most

    def fields(self) -> dict[str, Any]:
        """The part of a RunSummary that is counted here."""
        return {
            "groups_failed": len(self.lost),
            "rollouts": self.rollouts,
            "rollouts_failed": self.rollouts_failed,
            "failures": dict(self.failed.most_common()),
            "stop_reasons": dict(self.stop_reasons.most_common()),
            "parse_failures": dict(self.parse_failures.most_common()),
            "reward_mean": self.reward.mean if self.reward.n else None,
            "reward_std": self.reward.std,
            "zero_std_groups": self.zero_std_groups,
            "spread_groups": self.spread_groups,
            "useful_per_1000": 1000 * self.spread_groups / self.rollouts if self.rollouts else None,
            "environments": {name: one.told() for name, one in self.environments.items()}
            if len(self.environments) > 1
            else {},
            "rewards": means(self.rewards),
            "metrics": means(self.metrics) | dict(self.counts),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }

    def state(self) -> JsonDict:
        """What was counted of the groups file, as JSON that `from_state` reads. Lost tasks are in failures.jsonl."""
        numbers: JsonDict = {name: getattr(self, name) for name in _NUMBERS}
        numbers |= {name: dict(getattr(self, name)) for name in (*_COUNTERS, *_LATER_COUNTERS)}
        named = {"reward": {"": self.reward}, "rewards": self.rewards, "metrics": self.metrics}
        for kind, moments in named.items():
            numbers[kind] = {name: one.state() for name, one in moments.items() if one.n}  # type: ignore[misc]
        environments: JsonDict = {name: asdict(one) for name, one in self.environments.items()}
        return numbers | {"baselines": dict(self.baselines.values), "environments": environments}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Totals:
        """Raises KeyError, TypeError or ValueError for what `state` did not make."""
        totals = cls()
        for name in _NUMBERS:
            setattr(totals, name, int(state[name]))
        for name in _COUNTERS:
            getattr(totals, name).update({str(key): int(count) for key, count in state[name].items()})
        for name in _LATER_COUNTERS:
            getattr(totals, name).update({str(key): int(count) for key, count in state.get(name, {}).items()})
        totals.baselines = Baselines({str(key): float(one) for key, one in state.get("baselines", {}).items()})
        totals.environments = {
            str(name): EnvironmentTotals(**one) for name, one in state.get("environments", {}).items()
        }
        read = {kind: {str(name): Moments.from_state(row) for name, row in state[kind].items()} for kind in _MEANS}
        totals.reward = read["reward"].get("", totals.reward)
        totals.rewards, totals.metrics = read["rewards"], read["metrics"]
        return totals


def means(named: Mapping[str, Moments]) -> dict[str, float]:
    """The means of named values."""
    return {name: one.mean for name, one in named.items()}
