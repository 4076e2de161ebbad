"""From a finished run to an evaluation: success by task, pass@k, pass^k, how sure it is, and what changed.

A run of `atropos eval` is a run like any other; its groups are the evidence. What counts:

    attempts   every rollout that was asked for, failed ones included (of tasks that never came out too)
    success    the environment's own verdict, else a reward that reaches the threshold
    errors     attempts without a reward: wrong by default, or left out, and named either way

Means are over tasks; intervals are bootstrapped over tasks, since attempts at one task are not independent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.metrics import bootstrap_interval, pass_at_k, pass_hat_k
from atropos_cli.domain.plan import Plan, RewardRef
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.run import RunSummary
from atropos_cli.engine.analysis.success import OWN_FIELDS, TOLERANCE
from atropos_cli.errors import DataError
from atropos_cli.io.jsonvalue import read_object
from atropos_cli.ports.reward import Reward

Errors = Literal["wrong", "leave-out"]


class TaskResult(Frozen):
    """One task: attempts counted, successes among them, attempts without a reward, mean reward of the scored."""

    task_id: str
    attempts: int
    successes: int
    errors: int = 0
    truncated: int = 0
    reward: float | None = None

    @property
    def accuracy(self) -> float:
        return self.successes / self.attempts if self.attempts else 0.0


class Estimate(Frozen):
    """A mean over tasks with its 95% interval (None for fewer than two tasks)."""

    value: float
    low: float | None = None
    high: float | None = None
    tasks: int


class Evaluation(Frozen):
    """What an evaluation found, and everything needed to say what it means."""

    schema_version: int = 1
    environment: str
    environment_config: JsonDict
    split: str
    model: str | None
    plan_digest: str
    atropos_version: str
    sampling: JsonDict
    seed: int
    samples: int
    success_rule: str
    errors_count_as: Errors
    tasks: int
    attempts: int
    scored: int
    errors: int
    failures: dict[str, int] = Field(default_factory=dict)
    stop_reasons: dict[str, int] = Field(default_factory=dict)
    accuracy: Estimate
    reward: Estimate | None
    pass_at: dict[str, Estimate] = Field(default_factory=dict)
    pass_hat: dict[str, Estimate] = Field(default_factory=dict)
    left_out: dict[str, str] = Field(default_factory=dict)
    rewards: dict[str, float] = Field(default_factory=dict)
    metrics: dict[str, float] = Field(default_factory=dict)
    reward_details: dict[str, JsonDict] = Field(default_factory=dict)
    completion_tokens: int = 0
    per_task: tuple[TaskResult, ...]

    def headline(self) -> dict[str, float]:
        """The numbers to follow over time: accuracy with its interval, errors, reward, pass@k for k above 1."""
        values = {"accuracy": self.accuracy.value, "errors": float(self.errors)}
        if self.accuracy.low is not None and self.accuracy.high is not None:
            values |= {"accuracy_low": self.accuracy.low, "accuracy_high": self.accuracy.high}
        if self.reward is not None:
            values["reward"] = self.reward.value
        return values | {f"pass@{k}": value.value for k, value in self.pass_at.items() if k != "1"}


class Comparison(Frozen):
    """The change from a baseline on the tasks both have. gained and lost: tasks that crossed one half."""

    baseline_model: str | None
    tasks: int
    difference: Estimate
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    only_new: int
    only_baseline: int


def success_threshold(rewards: Iterable[RewardRef | Reward]) -> float:
    """The reward of a perfect attempt at 0-to-1 rewards: the sum of the positive weights."""
    return sum(max(0.0, reward.weight) for reward in rewards) or 1.0


def own_verdict(rollout: Rollout) -> tuple[str, bool] | None:
    """(field, verdict) of the environment's own verdict in the rollout's info; None without any."""
    for name in OWN_FIELDS:
        verdict = rollout.info.get(name)
        if isinstance(verdict, bool):
            return name, verdict
    return None


def reaches(rollout: Rollout, threshold: float) -> bool:
    """Whether the attempt has a reward, and it is the threshold or above, rounding aside."""
    return rollout.reward is not None and rollout.reward >= threshold - TOLERANCE


def succeeded(rollout: Rollout, threshold: float) -> bool:
    """The environment's own verdict on an attempt, else whether its reward reaches the threshold."""
    own = own_verdict(rollout)
    return reaches(rollout, threshold) if own is None else own[1]


class Judge:
    """Decides whether an attempt succeeded, and remembers by which rule."""

    def __init__(self, threshold: float | None, default: float) -> None:
        self._threshold = threshold
        self._default = default
        self.rules: Counter[str] = Counter()

    def __call__(self, rollout: Rollout) -> bool:
        own = own_verdict(rollout) if self._threshold is None else None
        bound = self._default if self._threshold is None else self._threshold
        self.rules[f"reward >= {bound:g}" if own is None else f"info.{own[0]}"] += 1
        return reaches(rollout, bound) if own is None else own[1]

    @property
    def rule(self) -> str:
        return " or ".join(self.rules) or "no attempt was judged"


class _Means:
    """Means of named numbers."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: Counter[str] = Counter()

    def add(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] += 1

    def means(self) -> dict[str, float]:
        return {name: total / self._counts[name] for name, total in self._sums.items()}


class _Tally:
    """What is counted while the groups pass by. Of an episode's turns only the last says how it ended."""

    def __init__(self, judge: Judge, errors: Errors) -> None:
        self.results: list[TaskResult] = []
        self.rewards = _Means()
        self.metrics = _Means()
        self.tokens = 0
        self._judge = judge
        self._errors = errors

    def add(self, group: ScoredGroup) -> None:
        if group.turn is not None and not group.last:
            return
        self.results.append(_task_result(group, self._judge, self._errors))
        for rollout in group.rollouts:
            self.tokens += rollout.usage.completion_tokens or 0
            self.rewards.add(rollout.rewards)
            self.metrics.add(rollout.metrics)


def evaluate(
    plan: Plan,
    groups: Iterable[ScoredGroup],
    summary: RunSummary,
    *,
    ks: Sequence[int] = (1,),
    success_at: float | None = None,
    errors: Errors = "wrong",
) -> Evaluation:
    """Count a run. Tasks whose groups failed as a whole are not in the file; the summary tells how many there are."""
    judge = Judge(success_at, success_threshold(plan.rewards))
    tally = _Tally(judge, errors)
    for group in groups:
        tally.add(group)
    results = tally.results
    missing = max(0, (summary.groups_total or len(results)) - len(results))
    results += [_failed_task(number, plan.group_size, errors) for number in range(missing)]
    counted = [result for result in results if result.attempts]
    pass_at, pass_hat, left_out = _passes(counted, ks)
    rewards = [result.reward for result in counted if result.reward is not None]
    failed = sum(result.errors for result in results)
    return Evaluation(
        environment=plan.environment.name,
        environment_config=plan.environment.config,
        split=plan.split,
        model=plan.model,
        plan_digest=plan.digest,
        atropos_version=plan.atropos_version,
        sampling=plan.sampling.model_dump(mode="json", exclude_none=True),
        seed=plan.seed,
        samples=plan.group_size,
        success_rule=judge.rule,
        errors_count_as=errors,
        tasks=len(results),
        attempts=len(results) * plan.group_size,
        scored=len(results) * plan.group_size - failed,
        errors=failed,
        failures=summary.failures,
        stop_reasons=summary.stop_reasons,
        accuracy=_estimate([result.accuracy for result in counted]),
        reward=_estimate(rewards) if rewards else None,
        pass_at=pass_at,
        pass_hat=pass_hat,
        left_out=left_out,
        rewards=tally.rewards.means(),
        metrics=tally.metrics.means(),
        reward_details=summary.reward_details,
        completion_tokens=tally.tokens,
        per_task=tuple(results),
    )


def compare(new: Evaluation, baseline: Evaluation) -> Comparison:
    """The paired change of accuracy. Raises DataError when the two share no task."""
    old = {result.task_id: result for result in baseline.per_task}
    pairs = [(result, old[result.task_id]) for result in new.per_task if result.task_id in old and result.attempts]
    if not pairs:
        raise DataError(
            f"the baseline ({baseline.environment}, {baseline.tasks} tasks) shares no task with this evaluation",
            hint="compare runs of the same environment, options, split and seed",
        )
    return Comparison(
        baseline_model=baseline.model,
        tasks=len(pairs),
        difference=_estimate([a.accuracy - b.accuracy for a, b in pairs]),
        gained=tuple(a.task_id for a, b in pairs if a.accuracy >= 0.5 > b.accuracy),
        lost=tuple(a.task_id for a, b in pairs if a.accuracy < 0.5 <= b.accuracy),
        only_new=len(new.per_task) - len(pairs),
        only_baseline=len(baseline.per_task) - len(pairs),
    )


def read_evaluation(path: Path) -> Evaluation:
    """An eval.json, or the one in a run folder. Raises DataError."""
    if path.is_dir():
        path = path / "eval.json"
    try:
        return Evaluation.model_validate(read_object(path))
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist", hint="give the folder or the eval.json of an evaluation") from error
    except (ValidationError, ValueError, OSError) as error:
        raise DataError(f"{path} is not an evaluation: {error}") from error


def _failed_task(number: int, attempts: int, errors: Errors) -> TaskResult:
    """A task whose group failed as a whole: only its number is known."""
    counted = attempts if errors == "wrong" else 0
    return TaskResult(task_id=f"(failed {number})", attempts=counted, successes=0, errors=attempts)


def _task_result(group: ScoredGroup, judge: Judge, errors: Errors) -> TaskResult:
    scored = [rollout for rollout in group.rollouts if rollout.reward is not None]
    failed = len(group.rollouts) - len(scored)
    rewards = [rollout.reward for rollout in scored if rollout.reward is not None]
    return TaskResult(
        task_id=group.task.id,
        attempts=len(group.rollouts) if errors == "wrong" else len(scored),
        successes=sum(judge(rollout) for rollout in scored),
        errors=failed,
        truncated=sum(rollout.truncated for rollout in group.rollouts),
        reward=sum(rewards) / len(rewards) if rewards else None,
    )


def _passes(
    results: Sequence[TaskResult], ks: Sequence[int]
) -> tuple[dict[str, Estimate], dict[str, Estimate], dict[str, str]]:
    """pass@k and pass^k for each k that every task has attempts for; the other ks with the reason."""
    pass_at: dict[str, Estimate] = {}
    pass_hat: dict[str, Estimate] = {}
    left_out: dict[str, str] = {}
    fewest = min((result.attempts for result in results), default=0)
    for k in sorted(set(ks)):
        if k > fewest:
            left_out[str(k)] = f"{fewest} attempts at a task are fewer than {k}"
            continue
        pass_at[str(k)] = _estimate([pass_at_k(r.attempts, r.successes, k) for r in results])
        pass_hat[str(k)] = _estimate([pass_hat_k(r.attempts, r.successes, k) for r in results])
    return pass_at, pass_hat, left_out


def _estimate(values: Sequence[float]) -> Estimate:
    if not values:
        return Estimate(value=0.0, tasks=0)
    interval = bootstrap_interval(values)
    low, high = interval if interval is not None else (None, None)
    return Estimate(value=sum(values) / len(values), low=low, high=high, tasks=len(values))
