"""The same rows through real TRL: advantages, loss and gradient norm agree to 1e-6."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from native_support import Folder, make_plan, rollout, span, train

from atropos_cli.sdk import ScoredGroup, Task, user

pytest.importorskip("trl")

GROUPS, SIZE, LENGTH = 3, 4, 8
ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "epsilon": 0.2},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "bnpo": {"loss_type": "bnpo"},
    "gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
    },
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
}


def rows(seed: int) -> list[dict[str, Any]]:
    """Completions with a masked token in the middle, and log-probabilities near the model's own (ln 21 is 3.04)."""
    rng = random.Random(seed)
    found = []
    for g in range(GROUPS):
        prompt = [rng.randrange(2, 21) for _ in range(rng.randint(2, 5))]
        for _ in range(SIZE):
            n = rng.randint(3, LENGTH)
            completion = [rng.randrange(2, 21) for _ in range(n)]
            mask = [1, 1, 0, *[1] * (n - 3)]
            logprobs = [-rng.uniform(2.7, 3.4) for _ in range(n)]
            score = rng.choice([0.0, 0.5, 1.0])
            found.append(
                {"prompt": prompt, "ids": completion, "mask": mask, "logprobs": logprobs, "score": score, "group": g}
            )
    return found


def groups_of(table: list[dict[str, Any]]) -> list[ScoredGroup]:
    groups = []
    for g in range(GROUPS):
        members = []
        for r, row in enumerate(row for row in table if row["group"] == g):
            values = [value if kept else 0.0 for value, kept in zip(row["logprobs"], row["mask"], strict=True)]
            turns = [
                ("user", span(row["prompt"], False)),
                ("assistant", span(row["ids"], tuple(map(bool, row["mask"])), values)),
            ]
            members.append(rollout(f"t{g}/{r}", turns, row["score"]))
        task = Task(id=f"t{g}", prompt=(user("x"),))
        groups.append(ScoredGroup(group_id=f"d-{g}", env="e", task=task, rollouts=tuple(members), model="m"))
    return groups


def perturb(model: Any) -> None:
    """Make a reference model that is not the policy: else the KL and its gradient are 0."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


def by_trl(tiny: Path, folder: Path, table: list[dict[str, Any]], behaviour: bool, **options: Any) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    class Rows(GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            out = super()._generate_and_score_completions(inputs)
            if behaviour:
                out["old_per_token_logps"] = out["sampling_per_token_logps"]
            return out

    def pull(prompts: Any, trainer: Any) -> dict[str, Any]:
        return {
            "prompt_ids": [row["prompt"] for row in table],
            "completion_ids": [row["ids"] for row in table],
            "logprobs": [row["logprobs"] for row in table],
            "env_mask": [row["mask"] for row in table],
            "score": [row["score"] for row in table],
        }

    config = GRPOConfig(
        str(folder),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=len(table),
        num_generations=SIZE,
        max_completion_length=LENGTH,
        max_steps=1,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        gradient_checkpointing=False,
        disable_tqdm=True,
        shuffle_dataset=False,
        **options,
    )
    trainer = Rows(
        model=str(tiny),
        reward_funcs=lambda score, **rest: score,
        rollout_func=pull,
        train_dataset=Dataset.from_dict({"prompt": ["-"] * GROUPS}),
        args=config,
    )
    if trainer.ref_model is not None:
        perturb(trainer.ref_model)
    trainer.train()
    found: dict[str, Any] = trainer.state.log_history[0]
    return found


@pytest.mark.parametrize("behaviour", [False, True], ids=["on-policy", "behaviour"])
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_same_rows_same_gradient(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, beta: float, behaviour: bool
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    table = rows(seed=4)
    wanted = by_trl(tiny, tmp_path / "trl", table, behaviour, beta=beta, **ALGORITHMS[algorithm])
    config = {
        "algorithm": algorithm,
        "beta": beta,
        "old_policy": "behaviour" if behaviour else "current",
        "max_completion_length": LENGTH,
        "micro_batch_tokens": 40,
    }
    from atropos_trl.common import models

    original = models.load_model
    calls: list[Any] = []

    def second_is_reference(name: str, **options: Any) -> Any:
        model = original(name, **options)
        calls.append(model)
        if len(calls) == 2:
            perturb(model)
        return model

    monkeypatch.setattr(models, "load_model", second_is_reference)
    context = Folder(tmp_path / "native", groups_of(table))
    train(make_plan(tiny, config=config, prompts_per_step=GROUPS), context)
    assert len(calls) == (2 if beta else 1)
    found = context.reports[0][1]
    for name in ("grad_norm", "loss", "reward", "reward_std", "frac_reward_zero_std", *(["kl"] if beta else [])):
        if name == "kl" and behaviour:
            continue  # TRL logs it times the ratio
        assert found[name] == pytest.approx(wanted[name], abs=1e-6, rel=1e-6), name
    assert wanted["grad_norm"] > 0.01
    if behaviour and algorithm in ("grpo", "dr_grpo", "dapo", "bnpo"):
        assert found["clip_ratio/region_mean"] == pytest.approx(wanted["clip_ratio/region_mean"], abs=1e-6)
        assert wanted["clip_ratio/region_mean"] > 0
