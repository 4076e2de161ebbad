"""The report of one environment: what its counts say, with every denominator."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from typing import Any

from atropos_cli.analysis.environment import Environment
from atropos_cli.analysis.options import AnalysisOptions
from atropos_cli.analysis.plugged import Findings, table_as_json
from atropos_cli.analysis.success import NO_VERDICT, TOLERANCE, told_by
from atropos_cli.analysis.totals import EpisodeTotal, TaskTotal
from atropos_cli.stats.estimators import pass_at_k, pass_hat_k
from atropos_cli.stats.streaming import Series, finite

_NORMAL_95 = 1.96


class EnvironmentReport:
    """Takes the tasks and episodes of an environment once its stream has ended."""

    def __init__(self, environment: Environment, options: AnalysisOptions) -> None:
        self.environment = environment
        self._options = options
        self._tasks = 0
        self._unscored_tasks = 0
        self._own = self._judged = 0
        self._turn_tasks = self._unjudged = 0
        self._outcomes: dict[str, Counter[tuple[int, int]]] = {"own": Counter(), "reward": Counter()}
        self._best: list[tuple[float, int, TaskTotal]] = []
        self._worst: list[tuple[float, int, TaskTotal]] = []
        self._failed: list[TaskTotal] = []
        self._failed_tasks = 0
        self.task_means = Series()
        self._episode_turns = Series()
        self._episode_rewards = Series()
        findings = environment.plugged.findings() if environment.plugged is not None else Findings()
        self.tables = findings.tables
        self.charts = findings.charts
        self.plugin_notes = findings.notes

    def add_task(self, key: str, task: TaskTotal) -> None:
        """Count a task; its rewards are judged by the highest one of the environment, which is known now."""
        self._tasks += 1
        self._turn_tasks += task.turns > 0
        self._unjudged += task.unjudged
        # Of turns of episodes a rollout is the episode, not one of the replies that a turn had to choose from.
        failed = (task.broken if task.turns else task.failed) if self._options.count_failed else 0
        scored = 0 if task.turns else task.scored
        self._own += task.own
        self._judged += max(scored, task.own)
        if task.own or failed:
            self._outcomes["own"][task.own + failed, task.own_yes] += 1
        if scored or (failed and not task.turns):
            self._outcomes["reward"][scored + failed, self._successes(task)] += 1
        if not (scored or task.own or failed):
            self._unscored_tasks += 1
        mean = task.mean
        if mean is None:
            if task.failed:
                self._failed_tasks += 1
                if len(self._failed) < self._options.top:
                    self._failed.append(task)
            return
        self.task_means.add(mean)
        top = self._options.top
        if top:
            _keep(self._best, (mean, -self._tasks, task), top)
            _keep(self._worst, (-mean, -self._tasks, task), top)

    def add_episode(self, episode: EpisodeTotal) -> None:
        self._episode_turns.add(episode.turns)
        if episode.scored and math.isfinite(episode.total):
            self._episode_rewards.add(episode.total)

    def as_json(self) -> dict[str, Any]:
        env = self.environment
        total = env.rollouts + env.lost_rollouts
        failed = env.failed + env.lost_rollouts
        data: dict[str, Any] = {
            "groups": sum(env.group_size.values()) + env.row_tasks,
            "groups_lost": env.lost_groups,
            "rollouts": {
                "total": total,
                "scored": env.scored,
                "failed": failed,
                "unscored": total - env.scored - failed,
                "non_finite": env.non_finite,
            },
            "reward": env.reward.as_json()
            | {
                "mean_over_tasks": finite(self.task_means.mean) if self.task_means.n else None,
                "stderr_over_tasks": self.task_means.stderr,
                "ci95_over_tasks": self._interval(),
            },
            "rewards": env.rewards.as_json(),
            "metrics": env.metrics.as_json(),
            "group_stats": env.groups.as_json(env.reward.low, env.reward.high),
            **self._success(),
            "best_of_k": self._best_of_k(),
            "retention": [retention.as_json() for retention in env.retention],
            "length": {
                "characters": env.characters.as_json(),
                "tokens": env.tokens.as_json() if env.tokens.n else None,
                "turns": env.turns.as_json(),
                "correlation_with_reward": env.length_and_reward.value,
            },
            "stop_reasons": dict(env.stop_reasons.most_common()),
            "finish_reasons": dict(env.finish_reasons.most_common()),
            "truncated": {"count": env.truncated, "of": env.rollouts},
            "failures": dict(env.failures.most_common()),
            "replies": {name: env.replies[name] for name in ("empty", "tool_call_in_text", "unclosed_thinking")},
            "tasks": {
                "count": self._tasks,
                "all_failed": self._failed_tasks,
                "failed": [_task_row(task) for task in self._failed],
                "best": [_task_row(task) for _, _, task in sorted(self._best, reverse=True)],
                "worst": [_task_row(task) for _, _, task in sorted(self._worst, reverse=True)],
            },
            "task_names": env.task_names.as_json(),
            "differences": env.differences.as_json(),
            "episodes": self._episodes(),
        }
        if self.tables:
            data["tables"] = {table.name: table_as_json(table) for table in self.tables}
        if env.labels:
            data["labels"] = dict(env.labels)
        return data

    def _interval(self) -> dict[str, Any] | None:
        """The 95 % interval of the mean over tasks, by the normal approximation."""
        mean, stderr = self.task_means.mean, self.task_means.stderr
        if stderr is None or finite(mean) is None:
            return None
        half = _NORMAL_95 * stderr
        return {
            "low": finite(mean - half),
            "high": finite(mean + half),
            "half": finite(half),
            "tasks": self.task_means.n,
        }

    def _successes(self, task: TaskTotal) -> int:
        if self._options.success.threshold is not None:
            return task.reached
        high = self.environment.reward.high
        reached = task.best is not None and high > 0 and task.best >= high - TOLERANCE
        return task.at_best if reached else 0

    def _success(self) -> dict[str, Any]:
        """The success rule that applies, and pass@k and pass^k by it."""
        rule = self._options.success
        told = self._own > 0 or (self._turn_tasks > 0 and not self._unjudged)
        own = rule.kind == "field" or (rule.kind == "auto" and told and self._own == self._judged)
        outcomes = self._outcomes["own" if own else "reward"]
        rollouts = sum(n * tasks for (n, _), tasks in outcomes.items())
        successes = sum(c * tasks for (_, c), tasks in outcomes.items())
        return {
            "success": {
                "rule": self._rule(own=own),
                "count": successes,
                "of": rollouts,
                "rate": successes / rollouts if rollouts else None,
                "failed_rollouts": "count as no success" if self._options.count_failed else "left out",
            },
            **self._pass_at(outcomes, own=own),
        }

    def _rule(self, *, own: bool) -> str:
        rule = self._options.success
        high = self.environment.reward.high
        if own:
            return told_by(self.environment.own_fields or (rule.field or "none was told",))
        if self._turn_tasks and self._turn_tasks == self._tasks:
            return NO_VERDICT if rule.kind == "auto" else "none: rewards of turns do not judge their episodes"
        if rule.threshold is not None:
            return f"reward {rule.threshold}"
        if not self.environment.reward.n:
            return "none: no rollout has a reward"
        if high > 0:
            return f"reward {high:g}, the highest seen"
        return f"none: the highest reward seen, {high:g}, is not above 0 (--success sets a threshold)"

    def _pass_at(self, outcomes: Counter[tuple[int, int]], *, own: bool) -> dict[str, Any]:
        data: dict[str, Any] = {"pass_at_k": {}, "pass_hat_k": {}, "left_out": []}
        tasks = sum(outcomes.values())
        if self._turn_tasks and not own and self._turn_tasks < self._tasks:
            data["left_out"].append(f"{self._turn_tasks} of {self._tasks} tasks are episodes told by turn, not judged")
        elif self._unjudged and own:
            data["left_out"].append(f"{self._unjudged} episodes carry no verdict")
        if not tasks:
            return data
        for k in self._options.ks or _usual_ks(max(n for n, _ in outcomes)):
            short = sum(count for (n, _), count in outcomes.items() if n < k)
            if short:
                note = f"pass@{k} and pass^{k}: {short} of {tasks} tasks have fewer than {k} rollouts that count"
                if self.environment.failed + self.environment.lost_rollouts and not self._options.count_failed:
                    note += " (failed ones do not; --count-failed counts them)"
                data["left_out"].append(note)
                continue
            for name, estimate in (("pass_at_k", pass_at_k), ("pass_hat_k", pass_hat_k)):
                values = [(estimate(n, c, k), count) for (n, c), count in outcomes.items()]
                data[name][str(k)] = _mean_over_tasks(values, tasks)
        if self._unscored_tasks:
            data["left_out"].append(f"{self._unscored_tasks} of {self._tasks} tasks have no rollout that counts")
        return data

    def _best_of_k(self) -> dict[str, Any]:
        """The expected best reward of k rollouts, for those k that every group allows."""
        best = self.environment.best_of
        groups = best[1].n if best else 0
        return {
            str(k): {"mean": finite(moments.mean), "stderr": moments.stderr, "groups": groups}
            for k, moments in best.items()
            if moments.n == groups
        }

    def _episodes(self) -> dict[str, Any] | None:
        if not self._episode_turns.n:
            return None
        turns = self.environment.turn_rewards
        return {
            "count": self._episode_turns.n,
            "turns": self._episode_turns.as_json(),
            "reward": self._episode_rewards.as_json(),
            "reward_by_turn": {str(turn): moments.as_json() for turn, moments in sorted(turns.items())},
        }


def _mean_over_tasks(values: list[tuple[float, int]], tasks: int) -> dict[str, Any]:
    """Mean and standard error of values that occur so many times."""
    mean = math.fsum(value * count for value, count in values) / tasks
    stderr = None
    if tasks > 1:
        variance = math.fsum(count * (value - mean) ** 2 for value, count in values) / (tasks - 1)
        stderr = math.sqrt(variance / tasks)
    return {"mean": mean, "stderr": stderr, "tasks": tasks}


def _usual_ks(most: int) -> list[int]:
    """1, 2, 4, ... and the number of rollouts itself."""
    ks = [1]
    while ks[-1] * 2 <= most:
        ks.append(ks[-1] * 2)
    return ks if ks[-1] == most else [*ks, most]


def _keep(heap: list[tuple[float, int, TaskTotal]], item: tuple[float, int, TaskTotal], size: int) -> None:
    """Keep the largest `size` items; equal ones by their order."""
    if len(heap) < size:
        heapq.heappush(heap, item)
    elif item > heap[0]:
        heapq.heapreplace(heap, item)


def _task_row(task: TaskTotal) -> dict[str, Any]:
    return {
        "task": task.label,
        "rollouts": task.rollouts,
        "scored": task.scored,
        "failed": task.failed,
        "reward_mean": task.mean,
        "reward_best": task.best,
        "reward_worst": task.worst,
    }
