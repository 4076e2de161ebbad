"""Rows of numbers through TRL's own loss and advantage code, without a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trl_support import make_plan, make_trainer

from atropos_cli.sdk import Message, Rollout, ScoredGroup, Task, TokenSpan, user


def trl_loss(given: dict[str, Any]) -> tuple[float, list[list[float]]]:
    """TRL's loss and its gradient by log-probability, set up as our algorithm of that name does."""
    import torch
    from atropos_trl.presets import ALGORITHMS
    from trl import GRPOTrainer

    rule = ALGORITHMS[given["kind"]]
    logp = torch.tensor(given["logp"], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor(given["mask"])
    high = given.get("cispo_cap", given.get("eps_high"))
    stand_in = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logp, torch.zeros_like(logp), None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=rule.level,
        beta=given.get("beta", 0.0),
        args=SimpleNamespace(use_bias_correction_kl=given.get("kl_ratio", False), delta=None, steps_per_generation=1),
        loss_type=rule.loss_type,
        epsilon_low=given.get("eps_low", 0.2),
        epsilon_high=high,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        max_completion_length=given.get("max_completion_length", 1),
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
    )
    inputs = {
        "prompt_ids": torch.zeros(len(mask), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(mask), 1, dtype=torch.long),
        "completion_ids": torch.zeros_like(mask),
        "completion_mask": mask,
        "advantages": torch.tensor(given["advantages"], dtype=torch.float64),
        "old_per_token_logps": torch.tensor(given["old_logp"], dtype=torch.float64),
        "num_items_in_batch": torch.tensor(float(given.get("num_tokens_global", mask.sum()))),
    }
    if "ref_logp" in given:
        inputs["ref_per_token_logps"] = torch.tensor(given["ref_logp"], dtype=torch.float64)
    loss = GRPOTrainer._compute_loss(stand_in, None, inputs)  # type: ignore[arg-type]
    loss.backward()
    return float(loss), logp.grad.tolist()


def trl_advantages(
    model: Path, folder: Path, groups: Sequence[Sequence[float]], algorithm: str, monkeypatch: Any
) -> list[list[float]]:
    """Advantages of groups with these rewards, as they stand in the batch of a real one-step run."""
    from atropos_trl.grpo import GrpoMixin

    seen: list[list[float]] = []
    real = GrpoMixin._generate_and_score_completions

    def kept(self: Any, inputs: Any) -> Any:
        out = real(self, inputs)
        seen.append(out["advantages"].tolist())
        return out

    monkeypatch.setattr(GrpoMixin, "_generate_and_score_completions", kept)
    size = len(groups[0])
    plan = make_plan(
        model,
        environment="arithmetic",
        group_size=size,
        prompts_per_step=len(groups),
        steps=1,
        config={"algorithm": algorithm, "allow_constant_reward": True},
    )
    make_trainer(plan).train(plan, Given(folder, groups))
    return [seen[0][at : at + size] for at in range(0, len(seen[0]), size)]


class Given:
    """A TrainContext whose groups have given rewards and two tokens each."""

    resume, tasks, stopping = False, None, False

    def __init__(self, folder: Path, groups: Sequence[Sequence[float]]) -> None:
        self.folder, self.groups_given = folder, groups

    def roll(self, places: Sequence[int], *, step: int) -> list[list[ScoredGroup]]:
        return [[self._group(place, self.groups_given[place])] for place in places]

    def _group(self, place: int, rewards: Sequence[float]) -> ScoredGroup:
        messages = (
            Message(role="user", content="a", tokens=TokenSpan(ids=(12,))),
            Message(role="assistant", content="1", tokens=TokenSpan(ids=(3, 1), mask=True, logprobs=(-3.0, -3.0))),
        )
        members = tuple(
            Rollout(id=f"{place}/{n}", task_id=str(place), messages=messages, reward=value)
            for n, value in enumerate(rewards)
        )
        task = Task(id=str(place), prompt=(user("a"),))
        return ScoredGroup(group_id=f"d-{place}", env="e", task=task, rollouts=members, model="m")

    def adopt(self, model: Any, tokenizer: Any) -> None: ...

    def report(self, step: int, metrics: Any) -> None: ...

    def samples(self, step: int, rows: Any) -> None: ...

    def warn(self, message: str) -> None: ...

    def evaluate(self, step: int, *, final: bool = False) -> dict[str, float]:
        return {}

    def should_evaluate(self, step: int) -> bool:
        return False

    def is_best(self, step: int) -> bool:
        return False
