"""A trainer that optimises nothing: it makes every call of the context and writes down what came back."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from atropos_cli.sdk import Config, ConfigError, Field, JsonDict
from atropos_cli.sdk.training import Trainer, TrainerError, TrainPlan, TrainResult


class StubConfig(Config):
    fail_at: int | None = Field(default=None, description="Raise in this step.")
    stop_at: int | None = Field(default=None, description="Send this process SIGTERM in this step.")
    begin_at: int = Field(default=0, description="Step to go on from.")
    begin_file: str | None = Field(default=None, description="Where that step stands; `evaluate` behind it: do so.")
    forbidden: bool = Field(default=False, description="Refuse the plan.")


class Stub(Trainer):
    name = "stub"
    methods = ("grpo", "sft", "dpo")
    Config = StubConfig

    def check(self, plan: TrainPlan) -> JsonDict:
        if self.config.forbidden:
            raise ConfigError("7 rows do not make groups of 8", hint="--prompts-per-step 8")
        return {"rows_per_step": plan.prompts_per_step}

    def train(self, plan: TrainPlan, context: Any) -> TrainResult:
        if plan.method != "grpo":
            rows = list(context.rows())
            (context.folder / "rows.json").write_text(json.dumps(rows))
            return TrainResult(output=str(context.folder), steps=len(rows))
        if plan.data:
            return self._on_data(context)
        return self._live(plan, context)

    def _on_data(self, context: Any) -> TrainResult:
        rows = list(context.rows())
        found = context.rewards(rows, [f"{row['answer']}" for row in rows])
        (context.folder / "rewards.json").write_text(json.dumps(found))
        return TrainResult(output=str(context.folder), steps=0)

    def _live(self, plan: TrainPlan, context: Any) -> TrainResult:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(plan.model, dtype="float32").train()
        context.adopt(model, AutoTokenizer.from_pretrained(plan.model))
        begin, first = self.config.begin_at, "evaluate"
        path = Path(self.config.begin_file or "none")
        if path.exists():
            number, _, first = path.read_text().partition(" ")
            begin = int(number)
        if first == "evaluate":
            context.evaluate(begin)
        seen: list[Any] = []
        for step in range(begin, plan.steps or 0):
            size = plan.prompts_per_step
            found = context.roll(range(step * size, (step + 1) * size), step=step)
            assert model.training
            seen.append([[group.task.id for group in groups] for groups in found])
            if step == self.config.fail_at:
                raise ZeroDivisionError("a bug of the trainer")
            if step == self.config.stop_at:
                os.kill(os.getpid(), signal.SIGTERM)
                if not context.stopping:
                    raise TrainerError("the signal was not seen")
                return TrainResult(output=str(context.folder), steps=step, stopped="interrupted")
            context.report(step + 1, {"loss": 1 / (step + 1), "nan": float("nan")})
            if context.should_evaluate(step + 1):
                context.evaluate(step + 1)
        context.evaluate(plan.steps or 0, final=True)
        (context.folder / "seen.json").write_text(json.dumps(seen))
        return TrainResult(output=str(context.folder), steps=plan.steps or 0, metrics={"loss": 0.5})
