"""Scored groups with token ids, and a run folder, for tests of the native trainer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atropos_cli.sdk import Message, Rollout, ScoredGroup, Task, TokenSpan, user
from atropos_cli.sdk.backends import Sampling
from atropos_cli.sdk.runs import ComponentRef, Plan, RewardRef
from atropos_cli.sdk.training import TrainPlan

WORDS = ["<pad>", "</s>", *"0123456789", "+", "=", "A", "B", "C", "D", "E", "F", "G"]


def span(ids: Sequence[int], mask: Any, logprobs: Sequence[float] | None = None, *, restart: bool = False) -> TokenSpan:
    return TokenSpan(ids=tuple(ids), mask=mask, logprobs=None if logprobs is None else tuple(logprobs), restart=restart)


def rollout(name: str, turns: Sequence[tuple[str, TokenSpan]], reward: float | None, **fields: Any) -> Rollout:
    messages = tuple(Message(role=role, content="x", tokens=tokens) for role, tokens in turns)  # type: ignore[arg-type]
    return Rollout(id=name, task_id=name.split("/")[0], messages=messages, reward=reward, **fields)


def make_groups(count: int, *, sizes: Sequence[int] = (4,), seed: int = 0, logprobs: bool = True) -> list[ScoredGroup]:
    """Groups of rollouts of one or two turns, with random tokens, masks and rewards."""
    rng = random.Random(seed)
    groups = []
    for g in range(count):
        prompt = [rng.randrange(2, 21) for _ in range(rng.randint(2, 6))]
        members = []
        for r in range(sizes[g % len(sizes)]):
            turns = [("user", span(prompt, False))]
            for turn in range(rng.randint(1, 2)):
                if turn:
                    turns.append(("user", span([rng.randrange(2, 21), 12], False)))
                ids = [rng.randrange(2, 21) for _ in range(rng.randint(1, 5))]
                values = [-rng.uniform(2.5, 3.5) for _ in ids] if logprobs else None
                turns.append(("assistant", span(ids, True, values)))
            members.append(rollout(f"t{g}/{r}", turns, float(rng.random() < 0.5)))
        task = Task(id=f"t{g}", prompt=(user("x"),))
        groups.append(ScoredGroup(group_id=f"d-{g}", env="e", task=task, rollouts=tuple(members), model="m"))
    return groups


@dataclass
class Folder:
    """A TrainContext over stored groups that keeps what it is told; samples and evaluates nothing."""

    folder: Path
    stored: Sequence[ScoredGroup]
    resume: bool = False
    tasks: int | None = None
    reports: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    evaluated: list[tuple[int, bool]] = field(default_factory=list)
    stop_at: int | None = None
    eval_every: int | None = None
    on_report: Callable[[int], None] = lambda step: None
    model: Any = None

    @property
    def stopping(self) -> bool:
        return self.stop_at is not None and bool(self.reports) and self.reports[-1][0] >= self.stop_at

    def adopt(self, model: Any, tokenizer: Any) -> None:
        self.model = model

    def groups(self) -> Iterator[ScoredGroup]:
        return iter(self.stored)

    def roll(self, places: Sequence[int], *, step: int) -> list[list[ScoredGroup]]:
        return [[self.stored[place % len(self.stored)]] for place in places]

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        self.reports.append((step, dict(metrics)))
        self.on_report(step)

    def evaluate(self, step: int, *, final: bool = False) -> dict[str, float]:
        self.evaluated.append((step, final))
        return {}

    def should_evaluate(self, step: int) -> bool:
        return self.eval_every is not None and step % self.eval_every == 0

    def is_best(self, step: int) -> bool:
        return False

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def make_plan(model: Path | str, *, config: Mapping[str, Any] | None = None, **fields: Any) -> TrainPlan:
    trainer = ComponentRef(name="native", config=dict(config or {}))
    values = {"atropos_version": "0", "method": "grpo", "model": str(model), "data": ("d",), "steps": 1, **fields}
    return TrainPlan(trainer=trainer, **values)


def arithmetic(model: Path, max_tokens: int) -> Plan:
    """How rollouts of a live training are made."""
    return Plan(
        atropos_version="0",
        environment=ComponentRef(name="arithmetic"),
        rewards=(RewardRef(name="exact_match"),),
        backend=ComponentRef(name="local"),
        model=str(model),
        sampling=Sampling(max_tokens=max_tokens),
    )


def train(plan: TrainPlan, context: Folder) -> Any:
    """Train as the engine does, in this process."""
    from atropos_trl.native.trainer import NativeTrainer

    trainer = NativeTrainer(NativeTrainer.Config.model_validate(plan.trainer.config))
    trainer.check(plan)
    return trainer.train(plan, context)  # type: ignore[arg-type]
