"""The trainer `tinker`: groups or demonstrations of ours, forward, backward and optimiser steps on a server.

TinkerTrainer(TinkerConfig()).train(plan, context)
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.sdk import AtroposError, ConfigError, JsonDict, ScoredGroup
from atropos_cli.sdk.backends import ServerUnavailable
from atropos_cli.sdk.training import (
    TrainContext,
    Trainer,
    TrainerError,
    TrainPlan,
    TrainResult,
    demonstrations,
)

from . import REQUIRES, config, saving
from .config import TinkerConfig
from .policy import Policy, adam_params
from .rows import Datum, data_of, demonstration, learnt, summary
from .service import Gone, Refused, Service
from .tokens import load_words

for _package in REQUIRES:
    if find_spec(_package) is None:  # found out here, the plan already fails, with the command that installs it
        raise ModuleNotFoundError(f"No module named {_package!r}", name=_package)

_EMPTY_STEPS = 3


class TinkerTrainer(Trainer):
    """See the module."""

    name: ClassVar[str] = "tinker"
    methods: ClassVar[Sequence[str]] = ("grpo", "sft")
    Config = TinkerConfig
    backend: ClassVar[str | None] = "tinker"
    access: ClassVar[frozenset[str]] = frozenset({"base_url", "api_key_env", "max_wait"})
    config: TinkerConfig

    def check(self, plan: TrainPlan) -> JsonDict:
        """See the port. No server is asked."""
        return config.check(self.config, plan)

    def train(self, plan: TrainPlan, context: TrainContext) -> TrainResult:
        """See the port."""
        self.check(plan)
        return _Loop(plan, context, self.config).run()


class _Loop:
    """One run. `step` counts optimiser steps, `taken` the tasks, groups or rows that they were made from."""

    def __init__(self, plan: TrainPlan, context: TrainContext, options: TinkerConfig) -> None:
        self.plan, self.context, self.options = plan, context, options
        self.step = self.taken = 0
        self.metrics: dict[str, float] = {}
        self.evaluated = False
        self.saved: int | None = None
        self.checked = False
        folder, state = saving.newest(context.folder) if context.resume else (None, {})
        service = Service(
            options.base_url, options.api_key_env, max_wait=options.max_wait, stopping=lambda: context.stopping
        )
        service.connect()
        base = service.model(options.base_model or plan.model)
        self.words = load_words(plan.model, service.contexts[base])
        if folder is None:
            self.policy = Policy.create(service, base, rank=options.lora_r, seed=plan.seed)
        else:
            self.policy = self._restored(service, folder, state, base)
        self.source = _Stored(plan, context, self) if plan.rollouts is None else None

    def _restored(self, service: Service, folder: Path, state: Mapping[str, Any], base: str) -> Policy:
        try:
            policy = Policy.restore(service, base, state["state"])
        except TrainerError as error:
            raise TrainerError(
                f"the server does not continue from {state['state']}: {error.message}",
                hint="start it with the same --data folder as before: it keeps the optimiser; or --overwrite",
            ) from error
        self.step, self.taken, self.saved = state["step"], state["taken"], state["step"]
        self.evaluated = saving.is_evaluated(folder)
        self.context.warn(f"resumed from step {self.step} (weights, optimiser, place in the data)")
        return policy

    def run(self) -> TrainResult:
        """To the end of the plan or of the data, or until stopped."""
        try:
            return self._run()
        except (ServerUnavailable, Gone, Refused) as error:  # the last also of a server that was started again
            if not self.context.stopping or self.saved is None:
                raise
            lost = "" if self.saved == self.step else f"; the steps after {self.saved} are lost"
            self.context.warn(f"{error.message}{lost}")
            self.step = self.saved
            return self._interrupted()

    def _run(self) -> TrainResult:
        self.context.adopt(self.policy, self.words)
        self.checked = self.step > 0 or self.plan.method == "sft" or self.options.allow_constant_reward
        if not self.evaluated and self._due and not self.context.stopping:
            self._evaluate()
        empty = 0
        while self.plan.steps is None or self.step < self.plan.steps:
            if self.context.stopping:
                return self._interrupted()
            batch = self._next()
            if batch is None:  # the end of a pass, or asked to stop while it waited for a batch
                break
            empty = 0 if batch else empty + 1
            if empty == _EMPTY_STEPS:
                raise TrainerError(f"no rollout of {empty} steps succeeded", hint="failures.jsonl says why")
            before = self.step
            try:
                self._batch(batch)
            except AtroposError:
                self._end_failed(before)
                raise
            self._after()
        self._save()
        if self.context.stopping:
            return self._interrupted()
        self.metrics |= self._evaluate(final=True)
        if not self.evaluated:
            return self._interrupted()
        output = self.context.folder / "model"
        saving.copy(self._place, output)
        return TrainResult(output=str(output), steps=self.step, metrics=self.metrics)

    def _next(self) -> list[Any] | None:
        """What the next step learns from: groups, or data of demonstrations; None at the end of a pass."""
        size = self.plan.prompts_per_step
        if self.source is not None:
            return self.source.next(size)
        left = None
        if self.plan.steps is None and self.context.tasks is not None:
            left = max(0, self.context.tasks - self.taken)
        if left == 0:
            return None
        self.policy.refresh()
        found = self.context.roll(range(self.taken, self.taken + size)[:left], step=self.step)
        self.taken += len(found)
        return [group for groups in found for group in groups] if found else None

    # The optimiser step -----------------------------------------------------------------------------------------------

    def _batch(self, batch: Sequence[Any]) -> None:
        """All optimiser steps on one batch."""
        began = time.perf_counter()
        sft = self.plan.method == "sft"
        loss = "cross_entropy" if sft else self.options.loss
        numbers = None if sft else config.loss_config(self.options)
        known = {} if sft else summary(batch)
        data = list(batch) if sft else self._data(batch)
        for _ in range(1 if sft else self.options.num_iterations):
            if self.plan.steps is not None and self.step >= self.plan.steps:
                break
            rate = config.rate(self.options, self.plan.steps, self.step)
            found = {**known, "learning_rate": rate, "rows": float(len(data))}
            if any(datum.advantage or datum.logprobs is None for datum in data):
                outcome = self.policy.step(data, loss, numbers, adam_params(self.options, rate))
                found |= {**learnt(data, outcome.logprobs, numbers), **_norm(outcome.metrics)}
            else:  # no group has an advantage: nothing would change
                found |= {"loss": 0.0, "num_tokens": 0.0}
            self.step += 1
            self.metrics = {**found, "step_time": time.perf_counter() - began}
            self.context.report(self.step, self.metrics)
            began = time.perf_counter()

    def _data(self, groups: Sequence[ScoredGroup]) -> list[Datum]:
        if not self.checked:
            rewards = [one.reward for group in groups for one in group.rollouts if one.reward is not None]
            if rewards and len(set(rewards)) == 1:
                raise ConfigError(
                    f"all {len(rewards)} completions of the first batch have reward {rewards[0]:g}: "
                    "every advantage is 0",
                    hint="look at samples.jsonl: answer format, --max-tokens, an easier task, a larger --group-size; "
                    "--allow-constant-reward continues all the same",
                )
            self.checked = bool(rewards)
        return data_of(groups, mask_truncated=self.options.mask_truncated, vocabulary=self.words.vocabulary)

    # Evaluations and checkpoints --------------------------------------------------------------------------------------

    @property
    def _place(self) -> Path:
        return self.context.folder / "checkpoints" / f"step-{self.step}"

    @property
    def _due(self) -> bool:
        """Is an evaluation due at the step at hand, other than the final one?"""
        return self.step == 0 or (self.context.should_evaluate(self.step) and self.step != self.plan.steps)

    def _after(self) -> None:
        """Save, then evaluate, unless the run is asked to stop."""
        due = self._due and not self.context.stopping
        if due or self.step % config.save_every(self.options, self.plan) == 0:
            self._save()
        if due:
            self.metrics |= self._evaluate()

    def _evaluate(self, *, final: bool = False) -> dict[str, float]:
        self.policy.refresh()
        found = self.context.evaluate(self.step, final=final)
        self.evaluated = bool(found) or not self.context.stopping  # else it was broken off
        if self.evaluated:
            saving.note_evaluated(self._place)
            self._prune()
        return found

    def _save(self) -> None:
        """Once a step."""
        if self.saved == self.step:
            return
        saved = self.policy.save(f"step-{self.step}")
        state = {
            "step": self.step,
            "taken": self.taken,
            "base_model": self.policy.base_model,
            "state": saved.state,
            "sampler": saved.sampler,
        }
        saving.write(self._place, self.policy, saved, self.words, state)
        self.saved = self.step
        if self.step == 0 and self.evaluated:
            saving.note_evaluated(self._place)
        self._prune()

    def _prune(self) -> None:
        keep = self.plan.keep_checkpoints
        self.policy.forget(saving.prune(self.context.folder, keep=keep, best=self.context.is_best))

    def _interrupted(self) -> TrainResult:
        self._save()
        return TrainResult(output=str(self._place), steps=self.step, metrics=self.metrics, stopped="interrupted")

    def _end_failed(self, before: int) -> None:
        """A stop rule ended the run after a step: the learnt weights are kept."""
        if self.step > before:
            try:
                self._save()
            except AtroposError as error:  # the rule's error is the one that counts
                self.context.warn(f"the last step is not saved: {error.message}")


def _norm(metrics: Mapping[str, float]) -> dict[str, float]:
    """The gradient's norm, which servers give by names of their own."""
    found = next((value for name, value in metrics.items() if name.rpartition("/")[2].startswith("grad_norm")), None)
    return {} if found is None else {"grad_norm": float(found)}


class _Stored:
    """Stored groups in file order, or demonstrations in an order drawn for each pass; over again while steps remain."""

    def __init__(self, plan: TrainPlan, context: TrainContext, loop: _Loop) -> None:
        self._plan, self._context, self._loop = plan, context, loop
        self._rows = self._demonstrations() if plan.method == "sft" else None
        self._items = itertools.islice(self._endless(), loop.taken, None)

    def next(self, size: int) -> list[Any] | None:
        """The next batch; None at the end of a single pass."""
        found = list(itertools.islice(self._items, size))
        self._loop.taken += len(found)
        return found or None

    def _endless(self) -> Iterator[Any]:
        for number in itertools.count():
            empty = True
            for item in self._pass(number):
                empty = False
                yield item
            if empty:
                raise TrainerError("the data holds no groups", hint="give --data the folder of an `atropos gen` run")
            if self._plan.steps is None:
                return

    def _pass(self, number: int) -> Iterator[Any]:
        if self._rows is None:
            return self._context.groups()
        order = list(range(len(self._rows)))
        random.Random(f"{self._plan.seed}:{number}").shuffle(order)
        return (self._rows[place] for place in order)

    def _demonstrations(self) -> list[Datum]:
        words = self._loop.words
        limit = min(self._loop.options.max_length or words.context, words.context)
        found = demonstrations(
            self._context.rows(),
            words.tokenizer,
            max_length=limit,
            vocabulary=words.vocabulary,
            ends=frozenset(words.ends),
        )
        if found.too_long:
            self._context.warn(f"{found.too_long} rows of more than {limit} tokens are left out")
        if found.untrained:
            self._context.warn(f"{found.untrained} rows without a token to train on are left out")
        return [demonstration(row) for row in found.rows]
