"""Running totals of a run, in constant memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

from atropos_cli.domain.finish import is_known
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.rollout import Rollout, RolloutFailure
from atropos_cli.domain.streaming import Moments
from atropos_cli.engine.advantages import ZERO_SPREAD, spread


class Totals:
    """Counts and means over the groups of this attempt."""

    def __init__(self) -> None:
        self.groups = 0
        self.groups_failed = 0
        self.rollouts = 0
        self.rollouts_failed = 0
        self.zero_std_groups = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.failures: Counter[str] = Counter()
        self.stop_reasons: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self._reward = Moments()
        self._rewards: dict[str, Moments] = {}
        self._metrics: dict[str, Moments] = {}

    def fail_group(self, failure: RolloutFailure, rollouts: int) -> None:
        """A group that was not written, since nothing in it succeeded."""
        self.groups_failed += 1
        self.rollouts += rollouts
        self.rollouts_failed += rollouts
        self.failures[f"{failure.stage}:{failure.type}"] += rollouts

    def add(self, group: ScoredGroup) -> None:
        """A written group."""
        if group.last:
            self.groups += 1
        self.rollouts += len(group.rollouts)
        rewards = []
        for rollout in group.rollouts:
            usage = rollout.usage
            self.prompt_tokens += usage.prompt_tokens or 0
            self.completion_tokens += usage.completion_tokens or 0
            if rollout.stop_reason is not None:
                self.stop_reasons[rollout.stop_reason] += 1
            if rollout.failure is not None:
                self.rollouts_failed += 1
                self.failures[f"{rollout.failure.stage}:{rollout.failure.type}"] += 1
            else:
                self._look_at_reply(rollout)
            if rollout.reward is not None:
                rewards.append(rollout.reward)
                self._reward.add(rollout.reward)
            for name, value in rollout.rewards.items():
                self._rewards.setdefault(name, Moments()).add(value)
            for name, value in rollout.metrics.items():
                self._metrics.setdefault(name, Moments()).add(value)
        if len(rewards) > 1 and spread(rewards) <= ZERO_SPREAD:
            self.zero_std_groups += 1

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
    def failure_rate(self) -> float:
        return self.rollouts_failed / self.rollouts if self.rollouts else 0.0

    def fields(self) -> dict[str, Any]:
        """The part of a RunSummary that is counted here."""
        return {
            "groups_failed": self.groups_failed,
            "rollouts": self.rollouts,
            "rollouts_failed": self.rollouts_failed,
            "failures": dict(self.failures.most_common()),
            "stop_reasons": dict(self.stop_reasons.most_common()),
            "reward_mean": self._reward.mean if self._reward.n else None,
            "reward_std": self._reward.std,
            "zero_std_groups": self.zero_std_groups,
            "rewards": {name: mean.mean for name, mean in self._rewards.items()},
            "metrics": {name: mean.mean for name, mean in self._metrics.items()} | dict(self.counts),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }
