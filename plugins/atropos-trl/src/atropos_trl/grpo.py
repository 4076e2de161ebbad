"""GRPO by TRL on live groups: rollouts come from the engine, the loss and the optimiser are TRL's.

TRL is given placeholder rows, a `rollout_func` that asks the engine for the groups at the next places of the
training order, and a reward function that hands back the rewards that came with them. Advantages are TRL's own
computation from these rewards (rows without a reward are left out of mean and std, their advantage is 0); for rloo
they are scaled to "mean of the others".
"""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.training import TrainerError

from .checks import check_constant
from .common.seeding import same_random_state
from .loop import Hooks
from .presets import Resolved
from .rows import IMPORTANCE_CAP, Batch, Row, batch_of
from .sizes import Sizes

BUFFER = "generation{}.pt"
"""The name is filled with "", or with _RANK where there are several processes."""


class Live:
    """The rollouts of a run: asked for by TRL, fetched from the engine."""

    def __init__(self, hooks: Hooks, sizes: Sizes, resolved: Resolved, *, filler: int, options: dict[str, Any]) -> None:
        self.hooks = hooks
        self.sizes = sizes
        self.resolved = resolved
        self.filler = filler
        self.mask_truncated: bool = options["mask_truncated"]
        self.max_prompt_tokens: int | None = options["max_prompt_tokens"]
        self.num_iterations: int = options["num_iterations"]
        self.allow_constant: bool = options["allow_constant_reward"]
        self.vocabulary: int | None = options["vocabulary"]
        self.behaviour: bool = options["behaviour_logprobs"]
        self.batch: Batch | None = None
        self.rollout_time = 0.0
        self._checked = hooks.begun > 0

    def places(self, step: int, prompts: list[str]) -> list[int]:
        """The places of the training order of this process's prompts at an optimiser step."""
        generation = 0 if self.resolved.same_batch else step // self.num_iterations
        numbers = list(dict.fromkeys(int(prompt) for prompt in prompts))
        return [generation * self.sizes.prompts + number for number in numbers]

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """TRL's rollout_func: rows in the order of the prompts, each prompt num_generations times."""
        step = trainer.state.global_step
        began = time.perf_counter()
        with same_random_state():
            found = self.hooks.context.roll(self.places(step, prompts), step=step)
        self.rollout_time = time.perf_counter() - began
        if not found and self.hooks.context.stopping:
            raise KeyboardInterrupt  # no batch came: the newest checkpoint is where it continues
        pulled = self.hooks.plan.pull is not None and not self.behaviour
        batch = batch_of(
            found,
            group_size=self.sizes.generations,
            filler=self.filler,
            mask_truncated=self.mask_truncated,
            max_prompt_tokens=self.max_prompt_tokens,
            version=step if pulled else None,
        )
        if len(batch.rows) != len(prompts):
            raise TrainerError(f"the engine gave {len(batch.rows)} rows where TRL needs {len(prompts)}")
        self._check_first(batch, trainer.accelerator)
        self.batch = batch
        if batch.long_prompts:
            self.hooks.context.warn(
                f"step {step + 1}: {batch.long_prompts} completions left out: their prompts have more than "
                f"{self.max_prompt_tokens} tokens (--max-prompt-tokens)"
            )
        known = all(row.logprobs is not None for row in batch.rows)
        return {
            "prompt_ids": [row.prompt_ids for row in batch.rows],
            "completion_ids": [row.completion_ids for row in batch.rows],
            "logprobs": [row.logprobs for row in batch.rows] if known else None,
            "env_mask": [[int(flag) for flag in row.trained] for row in batch.rows],
            "score": [row.reward for row in batch.rows],
        }

    def _check_first(self, batch: Batch, accelerator: Any) -> None:
        """The first batch is the dry run of the rewards: it costs nothing, and comes before any optimiser step."""
        if self._checked:
            return
        self._checked = True
        highest = max((max(*row.prompt_ids, *row.completion_ids, 0) for row in batch.rows), default=0)
        if self.vocabulary is not None and highest >= self.vocabulary:
            raise ConfigError(
                f"the rollouts have token {highest}, the model's are 0 to {self.vocabulary - 1}",
                hint="let the server serve the model that is trained",
            )
        rows = everywhere([(row.reward, row.truncated) for row in batch.rows], accelerator)
        (long,) = zip(*everywhere([(batch.long_prompts,)], accelerator), strict=True)
        scored = [reward for reward, _ in rows if reward is not None]
        if not scored and sum(long):
            raise ConfigError(
                f"none of the {len(rows)} rollouts of the first batch can be trained on: {sum(long)} have prompts of "
                f"more than {self.max_prompt_tokens} tokens (--max-prompt-tokens)",
                hint=f"raise --max-prompt-tokens; the shortest prompt here has {batch.shortest} tokens",
            )
        if not scored:
            raise TrainerError(
                f"all {len(rows)} rollouts of the first batch failed: there is nothing to learn from",
                hint="see failures.jsonl in the run folder for the reasons",
            )
        check_constant(scored, len(rows), sum(cut for _, cut in rows), allowed=self.allow_constant)


def everywhere(values: list[Any], accelerator: Any) -> list[Any]:
    """The values of all ranks, in their order. A collective operation."""
    if accelerator.num_processes == 1:
        return values
    from accelerate.utils import gather_object

    gathered: list[Any] = gather_object(values)
    return gathered


def environment(score: list[float | None], **columns: Any) -> list[float | None]:
    """TRL's reward function (its name is the metric's): the rewards that came with the rollouts."""
    return score


class GrpoMixin:
    """Overrides of TRL's GRPOTrainer; `live` is None for generation by TRL itself (--data)."""

    live: Live | None = None
    resolved: Resolved
    behaviour = False

    args: Any
    state: Any
    accelerator: Any
    model: Any
    beta: float
    ref_model: Any
    _metrics: Any
    _logs: Any
    _step: int
    _buffered_inputs: Any

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's, then: the batch holds what was sampled; behaviour logprobs and rloo's advantages are put in."""
        out: dict[str, Any] = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        if self.live is not None:
            assert self.live.batch is not None
            check_batch(out, self.live.batch.rows)
            self._own_metrics(self.live.batch)
            if self.behaviour:
                if "sampling_per_token_logps" not in out:
                    raise TrainerError(
                        "--behaviour-logprobs: the rollouts carry no log-probabilities",
                        hint="--logprobs require, with a backend that gives them",
                    )
                out["old_per_token_logps"] = out["sampling_per_token_logps"]
        if self.resolved.rule.leave_one_out:
            out["advantages"] = self._leave_one_out(inputs, out)
        if self.live is not None and self.live.batch is not None:
            self._correct(out, self.live.batch.rows)
        return out

    def _correct(self, out: dict[str, Any], rows: list[Row]) -> None:
        """Truncated importance sampling for the tokens of other weights: their advantages times min(C, p / q)."""
        import torch

        if "sampling_per_token_logps" not in out or not any(row.other and any(row.other) for row in rows):
            return
        ids = torch.cat([out["prompt_ids"], out["completion_ids"]], dim=1)
        attention = torch.cat([out["prompt_mask"], out["completion_mask"]], dim=1)
        width = out["completion_ids"].size(1)
        other = torch.zeros(out["completion_ids"].shape, dtype=torch.bool)
        for place, row in enumerate(rows):
            if row.other is not None:
                other[place, : len(row.other)] = torch.tensor(row.other)
        with torch.no_grad():
            now = self._logps(self.model, ids, attention, width, self.args.per_device_train_batch_size)
        ratio = (now - out["sampling_per_token_logps"]).exp().clamp(max=IMPORTANCE_CAP)
        weights = torch.where(other.to(ratio.device), ratio, torch.ones_like(ratio))
        out["advantages"] = out["advantages"].view(-1, 1) * weights
        mask = out["completion_mask"] * out["tool_mask"]
        mean = float((weights * mask).sum() / mask.sum().clamp(min=1))
        self._metrics["train"]["importance"].append(mean)

    def _own_metrics(self, batch: Batch) -> None:
        """What TRL reads off the last token is known here: a stop text ends a completion without an end token."""
        live = self.live
        assert live is not None
        mine = [
            (row.truncated, sum(row.trained), sum(row.trained) or len(row.completion_ids))
            for row in batch.rows
            if row.reward is not None
        ]
        kept = everywhere(mine, self.accelerator)
        counts = everywhere([(batch.failed, batch.split, batch.masked_truncated, live.rollout_time)], self.accelerator)
        failed, split, masked, times = zip(*counts, strict=True)
        metrics = self._metrics["train"]
        metrics["completions/clipped_ratio"][-1:] = [sum(cut for cut, _, _ in kept) / max(1, len(kept))]
        lengths = [length for _, _, length in kept] or [0]
        metrics["completions/mean_length"][-1:] = [sum(lengths) / len(lengths)]
        ended = [trained for cut, trained, _ in kept if not cut] or [0]
        metrics["completions/mean_terminated_length"][-1:] = [sum(ended) / len(ended)]
        metrics["rollouts/failed"].append(float(sum(failed)))
        metrics["rollouts/split"].append(float(sum(split)))
        metrics["rollouts/time"].append(max(times))
        if live.mask_truncated:
            metrics["completions/masked"].append(float(sum(masked)))

    def _leave_one_out(self, inputs: list[dict[str, Any]], out: dict[str, Any]) -> Any:
        """r_i - mean of the others = n / (n - 1) (r_i - mean); with beta, r_i is less beta times the k1 sum."""
        import torch

        size = self.args.num_generations
        device = out["advantages"].device
        if self.live is not None:
            scores = [row["score"] for row in inputs]
        else:
            scores = self._last_rewards
        rewards = torch.tensor([float("nan") if s is None else float(s) for s in scores], device=device)
        if self.ref_model is not None or self.resolved.beta:
            rewards = rewards - self.resolved.beta * self._k1(out)
        groups = rewards.view(-1, size)
        known = (~torch.isnan(groups)).sum(1, keepdim=True)
        centred = groups - torch.nanmean(groups, dim=1, keepdim=True)
        return torch.nan_to_num(centred * known / (known - 1).clamp(min=1), nan=0.0).view(-1)

    _last_rewards: list[float | None]

    def _k1(self, out: dict[str, Any]) -> Any:
        """Sum over trained tokens of logp - ref logp, by rows."""
        import torch

        ids = torch.cat([out["prompt_ids"], out["completion_ids"]], dim=1)
        attention = torch.cat([out["prompt_mask"], out["completion_mask"]], dim=1)
        mask = out["completion_mask"] * out.get("tool_mask", torch.ones_like(out["completion_mask"]))
        keep, size = out["completion_ids"].size(1), self.args.per_device_train_batch_size
        with torch.no_grad():
            now = self._logps(self.model, ids, attention, keep, size)
            if self.ref_model is not None:
                then = self._logps(self.ref_model, ids, attention, keep, size)
            else:
                with self.accelerator.unwrap_model(self.model).disable_adapter():
                    then = self._logps(self.model, ids, attention, keep, size)
        return ((now - then) * mask).sum(1)

    def _logps(self, model: Any, ids: Any, attention: Any, keep: int, size: int) -> Any:
        values, _, _ = self._get_per_token_logps_and_entropies(  # type: ignore[attr-defined]
            model, ids, attention, keep, batch_size=size
        )
        return values

    # Resuming inside a batch (num_iterations > 1) --------------------------------------------------------------------

    def save_generation(self) -> dict[str, bytes]:
        """The batch in use as a file, when further optimiser steps are due on it."""
        import torch

        if self._buffered_inputs is None or self.args.num_iterations == 1:
            return {}
        content = io.BytesIO()
        torch.save({"step": self._step, "batches": self._buffered_inputs}, content)
        return {self._buffer(): content.getvalue()}

    def _buffer(self) -> str:
        several = self.accelerator.num_processes > 1
        return BUFFER.format(f"_{self.accelerator.process_index}" if several else "")

    def load_generation(self, folder: Path, step: int) -> None:
        """Go on where save_generation left off."""
        import torch

        self._step = step * self.args.gradient_accumulation_steps
        if (folder / self._buffer()).is_file():
            stored = torch.load(folder / self._buffer(), map_location=self.accelerator.device, weights_only=True)
            self._step, self._buffered_inputs = stored["step"], stored["batches"]


def check_batch(out: dict[str, Any], rows: list[Row]) -> None:
    """Did ids, lengths and masks reach TRL's batch as sampled? For every row of every batch. Raises TrainerError."""
    if "tool_mask" not in out:
        raise TrainerError(
            "TRL did not take the mask of the rollouts: tokens of the environment would be trained on",
            hint="pip install 'atropos-trl[train]' for a TRL that passes env_mask on; unpatch it if unsloth is loaded",
        )
    trained = (out["tool_mask"] * out["completion_mask"]).sum(1).tolist()
    prompts, completions = out["prompt_mask"].sum(1).tolist(), out["completion_mask"].sum(1).tolist()
    for number, row in enumerate(rows):
        wanted = (len(row.prompt_ids), len(row.completion_ids), sum(row.trained))
        found = (prompts[number], completions[number], trained[number])
        if wanted != found:
            raise TrainerError(
                f"row {number} of TRL's batch has {found} prompt, completion and trained tokens; sampled were {wanted}"
            )
