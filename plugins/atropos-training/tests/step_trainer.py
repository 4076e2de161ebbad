"""A trainer that needs no model: it counts steps, leaves checkpoints and weights as a real one, and can be stopped.

The file named by `script` says what happens: "fail 0", "stop 1", "crash 1" (step), or nothing when it is not there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from atropos_cli.sdk import Config, DataError, Field
from atropos_cli.sdk.training import Trainer, TrainPlan, TrainResult


class StepsConfig(Config):
    script: str = Field(default="script", description="File with what happens.")
    group: int = Field(default=1, description="grpo: completions of each row.")


class Steps(Trainer):
    name = "steps"
    methods = ("grpo", "sft", "dpo")
    Config = StepsConfig

    def train(self, plan: TrainPlan, context: Any) -> TrainResult:
        path = Path(self.config.script)
        what, at = path.read_text().split() if path.exists() else ("", "-1")
        rows = list(context.groups()) if plan.method == "grpo" and not plan.rewards else list(context.rows())
        if plan.method == "grpo" and plan.rewards:
            many = [row for row in rows for _ in range(self.config.group)]
            texts = [f"{place % self.config.group}" for place in range(len(many))]
            (context.folder / "rewards.json").write_text(json.dumps(context.rewards(many, texts)))
        (context.folder / "rows.json").write_text(json.dumps([str(row) for row in rows]))
        saved = context.folder / "checkpoints"
        begin = 0
        if context.resume:
            steps = [int(folder.name.removeprefix("step-")) for folder in saved.glob("step-*")]
            if not steps:
                raise DataError("there is no complete checkpoint")
            begin = max(steps)
        for step in range(begin, plan.steps or 2):
            if str(step) == at:
                if what == "fail":
                    raise ZeroDivisionError("a bug of the trainer")
                if what == "crash":
                    os._exit(9)
                return TrainResult(output=str(saved / f"step-{step}"), steps=step, stopped="interrupted")
            context.report(step + 1, {"loss": 1 / (step + 1), "reward": step})
            (saved / f"step-{step + 1}").mkdir(parents=True)
        (context.folder / "model").mkdir(exist_ok=True)
        return TrainResult(output=str(context.folder / "model"), steps=plan.steps or 2, metrics={"loss": 0.5})
