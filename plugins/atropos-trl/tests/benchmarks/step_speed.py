"""Tokens a second of the optimiser's step: trainer `native` and bare TRL on the same rows, one after the other.

    python plugins/atropos-trl/tests/benchmarks/step_speed.py [--model smollm2] [--steps 4] [--rounds 1]

16 rows of four groups, prompts of 8 to 48 tokens and completions of 4 to 48; padding is not counted. dr_grpo, all
weights, fp32, OMP_NUM_THREADS=1. No sampling: both are given the rows. CPU seconds; the first step, which allocates,
is left out. Each in a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("PYTHONWARNINGS", "ignore")
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1] / "native"))
GROUPS, SIZE, LONGEST = 4, 4, 48


def rows(vocabulary: int) -> list[dict[str, Any]]:
    rng = random.Random(0)
    found = []
    for group in range(GROUPS):
        prompt = [rng.randrange(100, vocabulary) for _ in range(rng.randint(8, 48))]
        for number in range(SIZE):
            completion = [rng.randrange(100, vocabulary) for _ in range(rng.randint(4, LONGEST))]
            found.append({"prompt": prompt, "ids": completion, "score": float(number % 2), "group": group})
    return found


def native(model: str, steps: int, table: list[dict[str, Any]]) -> list[float]:
    from native_support import Folder, make_plan, rollout, span, train

    from atropos_cli.sdk import ScoredGroup, Task, user

    groups = []
    for number in range(GROUPS):
        members = [
            rollout(
                f"t{number}/{place}",
                [("user", span(row["prompt"], False)), ("assistant", span(row["ids"], True))],
                row["score"],
            )
            for place, row in enumerate(row for row in table if row["group"] == number)
        ]
        task = Task(id=f"t{number}", prompt=(user("x"),))
        groups.append(ScoredGroup(group_id=f"d-{number}", env="e", task=task, rollouts=tuple(members), model="m"))
    config = {"algorithm": "dr_grpo", "old_policy": "current", "max_completion_length": LONGEST, "learning_rate": 1e-5}
    marks: list[float] = []
    context = Folder(Path(tempfile.mkdtemp()), groups, on_report=lambda step: marks.append(time.process_time()))
    plan = make_plan(model, config=config, prompts_per_step=GROUPS, steps=steps, save_every=steps)
    train(plan, context)
    return [after - before for before, after in itertools.pairwise(marks)]


def trl(model: str, steps: int, table: list[dict[str, Any]]) -> list[float]:
    from atropos_trl.common import models
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    marks: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *args: object, **kwargs: object) -> None:
            marks.append(time.process_time())

    def pull(prompts: Any, trainer: Any) -> dict[str, Any]:
        return {
            "prompt_ids": [row["prompt"] for row in table],
            "completion_ids": [row["ids"] for row in table],
            "logprobs": [[0.0] * len(row["ids"]) for row in table],
            "score": [row["score"] for row in table],
        }

    config = GRPOConfig(
        tempfile.mkdtemp(),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=len(table),
        num_generations=SIZE,
        max_completion_length=LONGEST,
        max_steps=steps,
        learning_rate=1e-5,
        lr_scheduler_type="constant",
        loss_type="dr_grpo",
        scale_rewards="none",
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        gradient_checkpointing=False,
        disable_tqdm=True,
        shuffle_dataset=False,
    )
    trainer = GRPOTrainer(
        model=models.load_model(model),
        processing_class=models.load_tokenizer(model),
        reward_funcs=lambda score, **rest: score,
        rollout_func=pull,
        train_dataset=Dataset.from_dict({"prompt": ["-"] * GROUPS}),
        args=config,
        callbacks=[Clock()],
    )
    trainer.train()
    return [after - before for before, after in itertools.pairwise(marks)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=["native", "trl"])
    given = parser.parse_args()
    from atropos_trl.common import models

    table = rows(len(models.load_tokenizer(given.model)))
    if given.only:
        print(json.dumps({"native": native, "trl": trl}[given.only](given.model, given.steps, table)))
        return
    tokens = sum(len(row["prompt"]) + len(row["ids"]) for row in table)
    spent: dict[str, list[float]] = {"native": [], "trl": []}
    for _ in range(given.rounds):
        for name, found in spent.items():
            words = [sys.executable, __file__, "--model", given.model, "--steps", str(given.steps), "--only", name]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
            found.extend(json.loads(done.stdout.splitlines()[-1]))
    print(f"{tokens} tokens a step\n\n| | CPU s a step | tokens per CPU second |\n|---|---|---|")
    for name, found in spent.items():
        mean = sum(found) / len(found)
        print(f"| {name} | {mean:.2f} ({min(found):.2f} to {max(found):.2f}) | {tokens / mean:.0f} |")


if __name__ == "__main__":
    main()
