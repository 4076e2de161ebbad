"""The trainer `native`: roll or read groups, make rows, one AdamW step, again. Plain PyTorch.

On several processes each rolls its part of the tasks; all hold all rows, and each computes its part of them.

Beside TRL for what it cannot take: groups of any size, several token sequences from one rollout, stored
groups with the log-probabilities they were sampled with, advantages that an environment made itself.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import AtroposError, JsonDict, ScoredGroup
from atropos_cli.sdk.models import wait_passively
from atropos_cli.sdk.training import TrainContext, Trainer, TrainerError, TrainPlan, TrainResult
from atropos_trl import checks
from atropos_trl.common import checkpoints, machine, models
from atropos_trl.common.publishing import publish
from atropos_trl.common.seeding import same_random_state, seed_everything

from . import precision, weights
from .config import SPREAD, NativeConfig, loss_spec, old_policy, propose, rate_factor, save_every
from .crew import Crew
from .loss import importance, policy_loss, row_weights
from .memory import kept
from .policy import Place, Policy
from .preflight import check
from .rows import Kind, Row, group_advantages, rows_of, summary
from .spread import shares as shares_of
from .supply import Supply

if TYPE_CHECKING:
    import torch

_EMPTY_STEPS = 3
_BYTES = 12  # a trained fp32 weight and AdamW's two moments


def _start(context: TrainContext) -> tuple[Path | None, bool]:
    """The checkpoint to continue from, and whether its evaluation is done."""
    start = checkpoints.resumable(context.folder, weights.NEEDED)[1] if context.resume else None
    return start, start is not None and checkpoints.is_evaluated(start)


class NativeTrainer(Trainer):
    """GRPO and its relatives on live or stored groups."""

    name = "native"
    methods = ("grpo",)
    epochs = True
    Config = NativeConfig
    access = SPREAD
    off_policy = True

    def propose(
        self, method: str, given: Mapping[str, Any], *, live: bool
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """How stored groups were sampled, by the run's own settings."""
        return propose(self.config, given, live=live)

    def check(self, plan: TrainPlan) -> JsonDict:
        """See Trainer."""
        return check(self.config, plan)

    def train(self, plan: TrainPlan, context: TrainContext) -> TrainResult:
        """See Trainer."""
        wait_passively()
        crew = Crew.join(machine.pick_device())
        try:
            loop = _Loop(plan, context, self.config, crew)
            context.adopt(loop.policy.sampled, loop.tokenizer)
            try:
                return loop.run()
            except AtroposError:
                if crew.first:
                    raise
                # A launcher ends all processes when one fails: the first, which says why, must not be ended by another.
                return TrainResult(output=str(context.folder), steps=loop.step, stopped="failed")
        finally:
            crew.leave()


class _Loop:
    """One run. `step` counts optimiser steps, `supply.taken` the groups or tasks they were made from."""

    def __init__(self, plan: TrainPlan, context: TrainContext, config: NativeConfig, crew: Crew) -> None:
        self.plan, self.context, self.config, self.crew = plan, context, config, crew
        self.spec, self.old_policy = loss_spec(config, plan), old_policy(config, plan)
        sampling = plan.rollouts.sampling if plan.rollouts else None
        self.temperature = (sampling.temperature if sampling else config.temperature) or 1.0
        self.device = machine.pick_device()
        profile = machine.profile_of(self.device)
        self.micro = config.micro_batch_tokens or profile.tokens
        number = precision.pick(config.precision, self.device)
        seed_everything(plan.seed)
        self.step, self.skipped, self.told, self.metrics = 0, 0, 0, dict[str, float]()
        self.saved, self.checked = -1, False
        start, done = crew.once(lambda: _start(context))
        what = kept(config, plan, self.spec, number)
        known = models.facts(plan.model).parameters
        if known is not None:
            checks.check_disk(context.folder, known, what, plan)
        half = precision.half(number)
        model, self.tokenizer = weights.load(
            plan.model, config, start, again=profile.checkpointing, half=half, device=self.device
        )
        checks.check_tokenizer(self.tokenizer, plan.model, context, ends=models.end_ids(plan.model))
        self.vocabulary = models.check_pair(model, self.tokenizer, plan.model)
        length = checks.check_loaded(model, self.device, what, plan, context.folder).context
        if plan.rollouts is not None:
            checks.check_context(plan, length, plan.rollouts.sampling.max_tokens or 0, None)
        apart = bool(self.spec.beta) and config.lora_r is None  # with LoRA, the reference is the model without adapters
        place = Place(crew, self.device, number, split=config.sharding != "none", offload=config.cpu_offload)
        self.policy = Policy(model, models.load_model(plan.model) if apart else None, place, config, plan)
        if crew.rank:  # dropout of its own
            seed_everything(plan.seed + crew.rank)
        taken, self.evaluated = 0, done
        if start is not None:
            counts = weights.restore(start, self.policy, plan.seed)
            self.step, self.skipped, taken = (counts[name] for name in ("step", "skipped", "taken"))
            self.saved, self.told = self.step, self.skipped
            context.warn(f"resumed from step {self.step} (weights, optimizer, random state, place in the data)")
        live, size = plan.rollouts is not None, plan.prompts_per_step
        passes = None if plan.steps else plan.epochs
        self.supply = Supply(context, crew, live=live, size=size, taken=taken, passes=passes)

    def run(self) -> TrainResult:
        """To the end of the plan or of the data, or until stopped."""
        self.checked = self.step > 0 or self.config.advantages == "own"
        if not self.evaluated and self._due and not self._stopping():
            self._evaluate()
        empty = 0
        while self.plan.steps is None or self.step < self.plan.steps:
            if self._stopping():
                return self._interrupted()
            self.policy.refresh()
            with same_random_state():
                groups = self.supply.next(self.step)
            if not groups and self._stopping():  # while it waited for a batch
                return self._interrupted()
            if not groups and self.plan.steps is None and (self.plan.rollouts is None or self.supply.ended):
                break
            empty = 0 if groups else empty + 1
            if empty == _EMPTY_STEPS:
                raise TrainerError(f"no rollout of {empty} steps came out", hint="failures.jsonl tells why")
            before = self.step
            try:
                self._batch(groups)
            except AtroposError:  # what was learnt up to here is kept; after a stop rule, it is judged too
                self._end_failed(stopped=self.step > before)
                raise
            self._after()
        self._save()
        if self._stopping():
            return self._interrupted()
        self.metrics |= self._evaluate(final=True)
        if not self.evaluated:
            return self._interrupted()
        published = self.crew.once(self._publish)
        return TrainResult(output=str(published), steps=self.step, metrics=self.metrics)

    def _publish(self) -> Path:
        """The weights that are here, or those of the last checkpoint where these are split, or were made smaller."""
        model, place = self.policy.model, self.policy.place
        if place.split or (self.config.lora_r and place.number != "fp32") or self.config.lora_4bit:
            saved = self.context.folder / "checkpoints" / f"step-{self.step}"
            model, _ = weights.load(self.plan.model, self.config, saved)
        folder = self.context.folder / "model"
        return publish(folder, model, self.tokenizer, step=self.step, warn=self.context.warn)

    def _interrupted(self) -> TrainResult:
        """The last step is saved, or is now."""
        self._save()
        output = str(self.context.folder / "checkpoints" / f"step-{self.step}")
        return TrainResult(output=output, steps=self.step, metrics=self.metrics, stopped="interrupted")

    def _end_failed(self, *, stopped: bool) -> None:
        if not self.step or not self.policy.finite():
            return
        if self.step % self.config.num_iterations == 0:
            self._save()
        try:
            if stopped and not self._stopping():
                self._evaluate(final=True)
        except AtroposError as error:  # the rule's error is the one that counts
            self.context.warn(f"no final evaluation: {error.message}")

    def _stopping(self) -> bool:
        """Is any process asked to stop?"""
        return self.crew.any(self.context.stopping)

    @property
    def _due(self) -> bool:
        """Is an evaluation due at the step at hand, other than the final one?"""
        return self.step == 0 or (self.context.should_evaluate(self.step) and self.step != self.plan.steps)

    def _after(self) -> None:
        """Save, then evaluate, unless the run is asked to stop."""
        due = self._due and not self._stopping()
        if due or self.step % save_every(self.config, self.plan) == 0:
            self._save()
        if due:
            self.metrics |= self._evaluate()

    def _evaluate(self, *, final: bool = False) -> dict[str, float]:
        self.policy.refresh()
        with same_random_state():
            found, stopping = self.crew.once(
                lambda: (self.context.evaluate(self.step, final=final), self.context.stopping)
            )
        self.evaluated = bool(found) or not stopping  # else it was broken off
        if self.evaluated and self.crew.first:
            checkpoints.note_evaluated(self.context.folder, self.step)
            self._prune()
        return found

    # The optimiser step -----------------------------------------------------------------------------------------------

    def _batch(self, groups: Sequence[ScoredGroup]) -> None:
        """All optimiser steps on one batch of groups."""
        began = time.perf_counter()
        others = self.plan.pull is not None or self.plan.async_steps > 0  # may have sampled the groups
        version = self.step if others and self.old_policy == "current" else None
        rows = rows_of(groups, mask_truncated=self.config.mask_truncated, vocabulary=self.vocabulary, version=version)
        self._check_first(groups)
        old = self._old(rows)
        charge: dict[tuple[int, int], float] = {}
        reference: list[torch.Tensor] | None = None
        if self.spec.beta:
            reference = self._score(rows, reference=True)
            if self.spec.level == "sum":  # rloo: r - beta x k1
                before = old or self._score(rows)
                for row, mine, theirs in zip(rows, before, reference, strict=True):
                    charge[row.owner] = charge.get(row.owner, 0.0) + self.spec.beta * float((mine - theirs).sum())
        values = group_advantages(groups, self._advantage(groups), charge)
        scales = [values[g][r] for g, r in (row.owner for row in rows)]
        known = summary(groups, rows)
        for _ in range(self.config.num_iterations):
            if self.plan.steps is not None and self.step >= self.plan.steps:
                break
            self.metrics = known | self._update(rows, scales, old, reference)
            self.step += 1
            self.metrics |= {"skipped_steps": float(self.skipped), "step_time": time.perf_counter() - began}
            self.crew.once(lambda: self.context.report(self.step, self.metrics))
            self._check_skipped()
            began = time.perf_counter()

    def _advantage(self, groups: Sequence[ScoredGroup]) -> Kind:
        wanted = self.config.advantages
        sent = self.plan.pull is not None and bool(groups) and all(group.advantages is not None for group in groups)
        return "own" if wanted == "own" or (wanted == "auto" and sent) else self.spec.advantage

    def _check_first(self, groups: Sequence[ScoredGroup]) -> None:
        if self.checked:
            return
        known = [rollout for group in groups for rollout in group.rollouts if rollout.reward is not None]
        rewards = [rollout.reward for rollout in known if rollout.reward is not None]
        cut = sum(rollout.truncated for rollout in known)
        checks.check_constant(rewards, len(known), cut, allowed=self.config.allow_constant_reward)
        self.checked = bool(rewards)

    def _old(self, rows: Sequence[Row]) -> list[torch.Tensor] | None:
        """What the ratio is taken against; None: the weights at the time of the one update."""
        import torch

        if self.old_policy == "behaviour":
            unknown = sum(row.logprobs is None for row in rows)
            if unknown:
                raise TrainerError(
                    f"{unknown} of {len(rows)} rows lack the log-probabilities they were sampled with",
                    hint="generate with --logprobs require, or give --old-policy current to do without correction",
                )
            return [torch.tensor(row.logprobs) * torch.tensor(row.trained) for row in rows]
        return self._score(rows) if self.config.num_iterations > 1 else None

    def _score(self, rows: Sequence[Row], *, reference: bool = False) -> list[torch.Tensor]:
        """Log-probabilities of the rows' trained tokens under the weights as they are, or under the reference's."""
        return self.policy.score(rows, self.micro, self.temperature, reference=reference)

    def _update(
        self,
        rows: Sequence[Row],
        scales: Sequence[float],
        old: Sequence[torch.Tensor] | None,
        reference: Sequence[torch.Tensor] | None,
    ) -> dict[str, float]:
        """One optimiser step over all rows. A step whose loss or gradient is not finite changes nothing."""
        shares = row_weights(self.spec, [row.tokens for row in rows])
        # A row without advantage or KL has no gradient: it counts in the normalisation, and costs no computing.
        live = [i for i, row in enumerate(rows) if row.tokens and (scales[i] != 0 or reference is not None)]
        tokens, total = sum(rows[i].tokens for i in live), sum(row.tokens for row in rows)
        parts = self.policy.parts([rows[i] for i in live], self.micro)
        while True:
            self.policy.begin()
            mine: dict[str, float] = {"loss": 0.0}
            for places in self.policy.batches([rows[i] for i in live], parts):
                part, found = self._loss(rows, [live[place] for place in places], (scales, shares), old, reference)
                self.policy.backward(part)
                for name, value in {**found, "loss": part.detach()}.items():
                    mine[name] = mine.get(name, 0.0) + float(value)
            sums = self.crew.total(mine)
            loss, norm = sums.pop("loss"), self.policy.norm()
            if not self.policy.scale.again(loss, norm):
                break
        rate = self.policy.rate * rate_factor(self.config, self.plan.steps, self.step)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.skipped += 1
        elif rows:
            self.policy.step(rate)
        # What is clipped has an advantage, so this share is one of all tokens; the others are of those computed.
        sums["clip_ratio/region_mean"] = sums.get("clip_ratio/region_mean", 0.0) * tokens / max(1, total)
        means = {name: value / max(1, tokens) for name, value in sums.items()}
        means |= shares_of([len(rows[i].ids) for i in live], parts) | self.policy.scale.metrics()
        return {"loss": loss, "grad_norm": norm, "learning_rate": rate, "num_tokens": float(total), **means}

    def _loss(
        self,
        rows: Sequence[Row],
        batch: Sequence[int],
        factors: tuple[Sequence[float], Sequence[float]],
        old: Sequence[torch.Tensor] | None,
        reference: Sequence[torch.Tensor] | None,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss of a micro-batch, and sums over its tokens. factors: advantages and weights of all rows."""
        import torch

        chosen = [rows[i] for i in batch]
        packed = self.policy.packed(chosen)
        mask = packed[2]
        logp, entropy = self.policy.logps(packed, self.temperature)
        before = logp.detach() if old is None else self._pad([old[i] for i in batch], mask)
        ref = None if reference is None else self._pad([reference[i] for i in batch], mask)
        pair = [torch.tensor([values[i] for i in batch] or [0.0], device=self.device) for values in factors]
        capped = importance(chosen, logp)
        if capped is not None:
            pair[0] = pair[0][:, None] * capped
        part, found = policy_loss(self.spec, logp, before, mask, (pair[0], pair[1]), ref)
        if capped is not None:
            found["importance"] = (capped * mask).sum()
        return part, {**found, "entropy": entropy.sum()}

    def _check_skipped(self) -> None:
        """Warn of a step that was skipped. Raises TrainerError when there were too many."""
        if self.skipped == self.told:
            return
        self.told, most = self.skipped, self.config.max_nonfinite_steps
        self.context.warn(
            f"step {self.step}: the loss or its gradient is not a finite number; the step is skipped "
            f"({self.skipped} so far, the run stops at {most})"
        )
        if self.skipped >= most:
            raise TrainerError(
                f"{self.skipped} steps had a loss or gradient that is not a finite number; the last was {self.step}",
                hint="lower --learning-rate, give --precision fp32, or look at the rewards and logprobs of the rows",
            )

    def _pad(self, values: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        import torch
        from torch.nn.utils.rnn import pad_sequence

        return pad_sequence(list(values), batch_first=True).to(like) if values else torch.zeros_like(like)

    # Weights and state ------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        """Once a step."""
        if self.saved == self.step:
            return
        self.saved = self.step
        counts = {"step": self.step, "taken": self.supply.taken, "skipped": self.skipped}
        needed = _BYTES * sum(parameter.numel() for parameter in self.policy.trained)
        snapshot = weights.Snapshot(self.policy, counts)
        fill = functools.partial(snapshot.write, tokenizer=self.tokenizer)
        self.crew.once(lambda: checkpoints.save(self.context.folder, self.step, fill, needed=needed))
        if not self.crew.first:
            return
        if self.step == 0 and self.evaluated:
            checkpoints.note_evaluated(self.context.folder, 0)
        self._prune()

    def _prune(self) -> None:
        found = [step for step, _ in checkpoints.checkpoints(self.context.folder)]
        best = next((step for step in found if self.context.is_best(step)), None)
        checkpoints.prune(self.context.folder, keep=self.plan.keep_checkpoints, best=best)
