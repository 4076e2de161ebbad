"""Completions that a trainer made itself, of prompts from --data: scored by the run's rewards, a prompt's as one group.

answers = Answers(rewards, plan, keep_failure, warn); LoopThread().call(answers.score(rows, completions))
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from atropos_cli.sdk import ConfigError, DataError, JsonDict, Message, Reward, Rollout, RolloutFailure, Task
from atropos_cli.sdk.engine import Execution, FailureWatch, Scorer, close_part, make_group_id
from atropos_cli.sdk.training import TrainPlan

KeepFailure = Callable[[str, str | None, RolloutFailure, str | None], None]
"""Told of each failed rollout: group, task, failure, rollout."""


class Answers:
    """Scores completions, each group in the time that the plan gives it; what fails is kept, and said once."""

    def __init__(
        self, rewards: Sequence[Reward], plan: TrainPlan, keep_failure: KeepFailure, warn: Callable[[str], None]
    ) -> None:
        self._rewards = rewards
        self._scorer = Scorer(rewards)
        self._digest = plan.digest
        self._seconds = plan.group_timeout
        self._keep_failure = keep_failure
        self._warn = warn
        self._opened = False
        self._groups = 0
        self._told = False
        self._watch = FailureWatch(Execution().same_failures)

    async def score(self, rows: Sequence[JsonDict], completions: Sequence[str]) -> list[float | None]:
        """The total of each completion, None where a reward failed. Neighbours of the same row are one group."""
        if not self._opened:
            self._opened = True
            for reward in self._rewards:
                await reward.open()
        values: list[float | None] = []
        failures: list[RolloutFailure] = []
        for row, texts in _groups(rows, completions):
            task = task_of(row, self._groups)
            group_id = make_group_id(self._digest, self._groups)
            self._groups += 1
            made = [_rollout(task, f"{group_id}/{number}", text) for number, text in enumerate(texts)]
            for rollout in await self._scorer.score(task, made, self._seconds):
                values.append(rollout.reward)
                if rollout.failure is not None:
                    failures.append(rollout.failure)
                    self._keep_failure(group_id, task.id, rollout.failure, rollout.id)
                self._watch.look([rollout])
        if failures and not self._told:
            self._told = True
            first = failures[0]
            self._warn(
                f"{len(failures)} of {len(values)} completions could not be scored, the first for "
                f"{first.type}: {first.message:.300}; failures.jsonl has all"
            )
        return values

    async def close(self) -> None:
        """Close the rewards."""
        if self._opened:
            for reward in self._rewards:
                await close_part(reward)


class Failures:
    """Failed rollouts of an evaluation by "stage:type", with the first message of each; an OnFailure of players.

    by_place: "stage:type" of each failed rollout by its task's place.
    """

    def __init__(self, group_size: int) -> None:
        self.counts: Counter[str] = Counter()
        self.by_place: dict[int, list[str]] = {}
        self._group_size = group_size
        self._first: dict[str, str] = {}

    def __call__(self, place: int, task: Task, reason: RolloutFailure, rollout: str | None) -> None:
        kind = f"{reason.stage}:{reason.type}"
        count = self._group_size if rollout is None else 1
        self.counts[kind] += count
        self.by_place.setdefault(place, []).extend([kind] * count)
        self._first.setdefault(kind, reason.message)

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def commonest(self) -> str:
        """The most frequent kind, how often, and what its first message was."""
        ((kind, count),) = self.counts.most_common(1)
        return f"{kind} ({count}): {self._first[kind]:.300}"

    def summary(self, suite: str, step: int, rollouts: int) -> str | None:
        """What to say of a suite's evaluation; None: nothing failed. Raises ConfigError when all did before step 1."""
        if not self.total:
            return None
        what = f"evaluation {suite!r}: {self.total} of {rollouts} rollouts failed"
        if self.total >= rollouts and step == 0:
            raise ConfigError(
                f"{what} before training: {self.commonest}",
                hint=f"mend the environment or its options: atropos env check; or leave out --eval {suite}",
            )
        return f"{what} at step {step}; they count as wrong. Most often: {self.commonest}"


def task_of(row: JsonDict, number: int) -> Task:
    """A row of --data as a task. Raises DataError naming the row."""
    prompt: Any = row.get("prompt")
    turns = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    try:
        messages = tuple(Message.model_validate(turn) for turn in turns)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(
            f"the prompt of row {row.get('id', number)} cannot be read: {where}: {first['msg']}",
            hint="a prompt is a text, or a list of messages",
        ) from error
    answer = next((row[name] for name in ("answer", "solution", "ground_truth") if row.get(name) is not None), None)
    info = {key: value for key, value in row.items() if key not in ("prompt", "answer")}
    return Task(id=str(row.get("id", number)), prompt=messages, answer=answer, info=info)


def _groups(rows: Sequence[JsonDict], completions: Sequence[str]) -> Iterator[tuple[JsonDict, list[str]]]:
    pairs = zip(rows, completions, strict=True)
    for row, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        yield row, [text for _, text in group]


def _rollout(task: Task, number: str, text: str) -> Rollout:
    reply = Message(role="assistant", content=text)
    return Rollout(id=number, task_id=task.id, messages=(*task.prompt, reply))
