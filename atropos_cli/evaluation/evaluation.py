"""From a finished run to an evaluation: success by task, pass@k, pass^k, how sure it is, and what changed.

A run of `atropos eval` is a run like any other; its groups are the evidence. What counts:

    rollouts   every rollout that was asked for, failed ones included (of tasks that never came out too); where groups
               are turns of an episode, every episode
    success    the environment's own verdict, else a reward that reaches the threshold (never a turn's)
    errors     rollouts without a reward: wrong by default, or left out, and named either way

Means are over tasks; intervals are bootstrapped over tasks, since rollouts of one task are not independent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.group import ScoredGroup, parse_group_id
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.refs import RewardRef
from atropos_cli.domain.rollout import Rollout
from atropos_cli.errors import DataError
from atropos_cli.evaluation.evidence import Evidence
from atropos_cli.evaluation.success import NO_VERDICT, OWN_FIELDS, TOLERANCE, info_verdict, one_verdict
from atropos_cli.io.jsonvalue import read_object
from atropos_cli.io.lost import LostTask
from atropos_cli.ports.reward import Reward
from atropos_cli.rollout.mixture import member_name
from atropos_cli.rollout.totals import Totals, means
from atropos_cli.stats.metrics import bootstrap_interval, full_marks, pass_at_k, pass_hat_k

Errors = Literal["wrong", "leave-out"]


class TaskResult(Frozen):
    """One task: rollouts counted, successes among them, rollouts without a reward, mean reward of the scored."""

    task_id: str
    rollouts: int
    successes: int
    errors: int = 0
    truncated: int = 0
    reward: float | None = None

    @property
    def accuracy(self) -> float:
        return self.successes / self.rollouts if self.rollouts else 0.0


class Estimate(Frozen):
    """A mean over tasks with its 95% interval (None for fewer than two tasks)."""

    value: float
    low: float | None = None
    high: float | None = None
    tasks: int


class Evaluation(Frozen):
    """The results of an evaluation, with everything needed to interpret them.

    environments: of a mixture, the accuracy on each member's tasks.
    """

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
    rollouts: int
    scored: int
    errors: int
    failures: dict[str, int] = Field(default_factory=dict)
    stop_reasons: dict[str, int] = Field(default_factory=dict)
    environments: dict[str, Estimate] = Field(default_factory=dict)
    accuracy: Estimate | None
    reward: Estimate | None
    pass_at: dict[str, Estimate] = Field(default_factory=dict)
    pass_hat: dict[str, Estimate] = Field(default_factory=dict)
    left_out: dict[str, str] = Field(default_factory=dict)
    rewards: dict[str, float] = Field(default_factory=dict)
    metrics: dict[str, float] = Field(default_factory=dict)
    reward_details: dict[str, JsonDict] = Field(default_factory=dict)
    completion_tokens: int = 0
    cost: float | None = None
    currency: str | None = None
    per_task: tuple[TaskResult, ...]

    def headline(self) -> dict[str, float]:
        """The numbers to follow over time: accuracy and reward with their intervals, errors, pass@k above 1."""
        values = {"errors": float(self.errors)}
        if self.accuracy is not None:
            values = {"accuracy": self.accuracy.value, **values}
            if self.accuracy.low is not None and self.accuracy.high is not None:
                values |= {"accuracy_low": self.accuracy.low, "accuracy_high": self.accuracy.high}
        if self.reward is not None:
            values["reward"] = self.reward.value
            if self.reward.low is not None and self.reward.high is not None:
                values |= {"reward_low": self.reward.low, "reward_high": self.reward.high}
        values |= {f"accuracy/{name}": found.value for name, found in self.environments.items()}
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
    """The reward of a perfect rollout at 0-to-1 rewards: the sum of the positive weights."""
    return full_marks(reward.weight for reward in rewards)


def own_verdict(rollout: Rollout) -> tuple[str, bool] | None:
    """(field, verdict) of the environment's own verdict in the rollout's info; None without any."""
    for name in OWN_FIELDS:
        verdict = info_verdict(rollout.info, name)
        if verdict is not None:
            return name, verdict
    return None


def reaches(rollout: Rollout, threshold: float) -> bool:
    """Whether the rollout has a reward, and it is the threshold or above, rounding aside."""
    return rollout.reward is not None and rollout.reward >= threshold - TOLERANCE


def succeeded(rollout: Rollout, threshold: float) -> bool:
    """The environment's own verdict on a rollout, else whether its reward reaches the threshold."""
    own = own_verdict(rollout)
    return reaches(rollout, threshold) if own is None else own[1]


class Judge:
    """Decides whether a rollout succeeded, and remembers by which rule."""

    def __init__(self, threshold: float | None, default: float, members: Mapping[str, float]) -> None:
        """members: full marks in each environment of a mixture, by its name."""
        self._threshold = threshold
        self._default = default
        self._members = members
        self.rules: Counter[str] = Counter()

    def __call__(self, rollout: Rollout) -> bool:
        own = own_verdict(rollout) if self._threshold is None else None
        marks = self._members.get(member_name(rollout.task_id), self._default)
        bound = marks if self._threshold is None else self._threshold
        self.rules[f"reward >= {bound:g}" if own is None else f"info.{own[0]}"] += 1
        return reaches(rollout, bound) if own is None else own[1]

    def episode(self, turns: Sequence[ScoredGroup]) -> bool | None:
        """The verdict on an episode by what its turns carry; None without one, and where a threshold is asked for."""
        told: tuple[str, bool] | None = None
        for group in turns if self._threshold is None else ():
            alive = [own_verdict(rollout) for rollout in group.rollouts if rollout.failure is None]
            told = one_verdict([own for own in alive if own is not None]) or told
        if told is not None:
            self.rules[f"info.{told[0]}"] += 1
        return None if told is None else told[1]

    @property
    def rule(self) -> str:
        return " or ".join(self.rules) or "no rollout was judged"


class _Tally:
    """Counts while the groups are read.

    Rollouts are counted; where groups are turns of an episode, episodes are, by the verdict that their turns carry.
    """

    def __init__(self, judge: Judge, errors: Errors) -> None:
        self.totals = Totals()
        self.asked = 0
        self.turns = False
        self.unjudged = 0
        self._judge = judge
        self._errors = errors
        self._episode: list[ScoredGroup] = []
        self._found: list[tuple[float, TaskResult]] = []

    @property
    def results(self) -> list[TaskResult]:
        """In the order of the tasks: groups are written as they end, which differs from run to run."""
        return [result for _, result in sorted(self._found, key=itemgetter(0))]

    def add(self, group: ScoredGroup) -> None:
        """Groups of one task come in a row, the last one marked."""
        self.totals.add(group)
        if group.turn is None:
            self._found.append((_place(group), self._rollouts(group)))
            return
        self.turns = True
        self._episode.append(group)
        if group.last:
            self._found.append((_place(group), self._one_episode(self._episode)))
            self._episode = []

    def lose(self, task: LostTask) -> None:
        """A task of which nothing was written."""
        self.totals.lose(task.index, task.kinds)
        count = 1 if self.turns else len(task.failures)
        self._found.append((task.index, self._failed(task.task_id or f"(failed {task.index})", count)))

    def miss(self, number: int, rollouts: int) -> None:
        """A task of which nothing is known but that it did not come out."""
        self._found.append((math.inf, self._failed(f"(failed {number})", 1 if self.turns else rollouts)))

    def _failed(self, task_id: str, rollouts: int) -> TaskResult:
        self.asked += rollouts
        counted = rollouts if self._errors == "wrong" else 0
        return TaskResult(task_id=task_id, rollouts=counted, successes=0, errors=rollouts)

    def _rollouts(self, group: ScoredGroup) -> TaskResult:
        scored = [rollout for rollout in group.rollouts if rollout.reward is not None]
        self.asked += len(group.rollouts)
        return TaskResult(
            task_id=group.task.id,
            rollouts=len(group.rollouts) if self._errors == "wrong" else len(scored),
            successes=sum(self._judge(rollout) for rollout in scored),
            errors=len(group.rollouts) - len(scored),
            truncated=sum(rollout.truncated for rollout in group.rollouts),
            reward=_mean([rollout.reward for rollout in scored if rollout.reward is not None]),
        )

    def _one_episode(self, turns: list[ScoredGroup]) -> TaskResult:
        """One rollout; none where no turn carries a verdict, since a reward of a turn says nothing of the episode."""
        self.asked += 1
        rewards = [rollout.reward for group in turns for rollout in group.rollouts if rollout.reward is not None]
        last = turns[-1]
        broken = all(rollout.failure is not None for rollout in last.rollouts)
        verdict = None if broken else self._judge.episode(turns)
        self.unjudged += verdict is None and not broken
        return TaskResult(
            task_id=last.task.id,
            rollouts=int(verdict is not None or (broken and self._errors == "wrong")),
            successes=int(verdict is True),
            errors=int(broken),
            truncated=int(any(rollout.truncated for rollout in last.rollouts)),
            reward=_mean(rewards),
        )


def _place(group: ScoredGroup) -> float:
    """The index of the group's task; groups of other tools have none, and stay in their order."""
    try:
        return parse_group_id(group.group_id)[1]
    except ValueError:
        return math.inf


def evaluate(
    plan: Plan,
    run: Evidence,
    *,
    ks: Sequence[int] = (1,),
    success_at: float | None = None,
    errors: Errors = "wrong",
) -> Evaluation:
    """Count a run. Tasks of which nothing was written count as errors."""
    members = {member.name: success_threshold(member.rewards) for member in plan.mixture}
    judge = Judge(success_at, success_threshold(plan.rewards), members)
    tally = _Tally(judge, errors)
    for group in run.groups:
        tally.add(group)
    for task in run.lost:
        tally.lose(task)
    for number in range((run.total or 0) - len(tally.results)):
        tally.miss(number, plan.group_size)
    results = tally.results
    # Where no episode tells how it ended, those that broke off are no measure either.
    counted = [] if tally.unjudged and not judge.rules else [result for result in results if result.rollouts]
    pass_at, pass_hat, left_out = _passes(counted, ks)
    rewards = [result.reward for result in results if result.reward is not None]
    failed = sum(result.errors for result in results)
    return Evaluation(
        environment=plan.environment.name,
        environment_config=plan.environment.config | {item.name: item.model_dump(mode="json") for item in plan.mixture},
        split=plan.split,
        model=plan.model,
        plan_digest=plan.digest,
        atropos_version=plan.atropos_version,
        sampling=plan.sampling.model_dump(mode="json", exclude_none=True),
        seed=plan.seed,
        samples=plan.group_size,
        success_rule=judge.rule if counted or not tally.turns else NO_VERDICT,
        errors_count_as=errors,
        tasks=len(results),
        rollouts=tally.asked,
        scored=tally.asked - failed,
        errors=failed,
        failures=dict(tally.totals.failed.most_common()),
        stop_reasons=dict(tally.totals.stop_reasons.most_common()),
        accuracy=_estimate([result.accuracy for result in counted]) if counted or not tally.turns else None,
        environments={
            name: _estimate([result.accuracy for result in counted if member_name(result.task_id) == name])
            for name in members
        },
        reward=_estimate(rewards) if rewards else None,
        pass_at=pass_at,
        pass_hat=pass_hat,
        left_out=left_out,
        rewards=means(tally.totals.rewards),
        metrics=means(tally.totals.metrics),
        reward_details=dict(run.reward_details),
        completion_tokens=tally.totals.completion_tokens,
        cost=run.cost,
        currency=run.currency,
        per_task=tuple(results),
    )


def compare(new: Evaluation, baseline: Evaluation) -> Comparison:
    """The paired change of accuracy. Raises DataError when the two share no task."""
    old = {result.task_id: result for result in baseline.per_task}
    pairs = [(result, old[result.task_id]) for result in new.per_task if result.task_id in old and result.rollouts]
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


def _passes(
    results: Sequence[TaskResult], ks: Sequence[int]
) -> tuple[dict[str, Estimate], dict[str, Estimate], dict[str, str]]:
    """pass@k and pass^k for each k that every task has rollouts for; the other ks with the reason."""
    pass_at: dict[str, Estimate] = {}
    pass_hat: dict[str, Estimate] = {}
    left_out: dict[str, str] = {}
    fewest = min((result.rollouts for result in results), default=0)
    for k in sorted(set(ks)):
        if k > fewest:
            rollouts = "1 rollout of a task is" if fewest == 1 else f"{fewest} rollouts of a task are"
            left_out[str(k)] = f"{rollouts} fewer than {k}"
            continue
        pass_at[str(k)] = _estimate([pass_at_k(r.rollouts, r.successes, k) for r in results])
        pass_hat[str(k)] = _estimate([pass_hat_k(r.rollouts, r.successes, k) for r in results])
    return pass_at, pass_hat, left_out


def _estimate(values: Sequence[float]) -> Estimate:
    if not values:
        return Estimate(value=0.0, tasks=0)
    interval = bootstrap_interval(values)
    low, high = interval if interval is not None else (None, None)
    return Estimate(value=sum(values) / len(values), low=low, high=high, tasks=len(values))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
