"""A trainer whose weights are the list of the groups that it has learnt from; it can be killed at any moment."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from atropos_cli.sdk import Config, Field
from atropos_cli.sdk.training import Trainer, TrainPlan, TrainResult


class LedgerConfig(Config):
    every: int = Field(default=3, description="Steps between checkpoints.")
    pause: float = Field(default=0.02, description="Seconds that a step takes.")


class Ledger(Trainer):
    name = "ledger"
    Config = LedgerConfig

    def train(self, plan: TrainPlan, context: Any) -> TrainResult:
        saved = context.folder / "checkpoints"
        found = sorted(int(path.name.removeprefix("step-")) for path in saved.glob("step-*"))
        step = found[-1] if context.resume and found else 0
        learnt = json.loads((saved / f"step-{step}" / "learnt.json").read_text()) if step else []
        assert plan.steps is not None
        while step < plan.steps:
            size = plan.prompts_per_step
            groups = context.roll(range(step * size, (step + 1) * size), step=step)
            if not groups:
                return TrainResult(output=str(context.folder), steps=step, stopped="interrupted")
            learnt += [group.task.id.rpartition("/")[2] for found in groups for group in found]
            time.sleep(self.config.pause)
            step += 1
            context.report(step, {"loss": 0.0})
            if step % self.config.every == 0 or step == plan.steps:
                writing = saved / ".writing"
                writing.mkdir(parents=True, exist_ok=True)
                (writing / "learnt.json").write_text(json.dumps(learnt))
                os.rename(writing, saved / f"step-{step}")
        (context.folder / "model").mkdir(exist_ok=True)
        (context.folder / "learnt.json").write_text(json.dumps(learnt))
        return TrainResult(output=str(context.folder / "model"), steps=step)
