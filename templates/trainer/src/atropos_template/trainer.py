"""Imitate what was better than its group: the simplest thing that learns from live groups."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from atropos_cli.sdk import Config, Field, JsonDict, ScoredGroup, TokenSequence, token_sequences
from atropos_cli.sdk.training import TrainContext, Trainer, TrainPlan, TrainResult


class TemplateNameConfig(Config):
    """Each field is a flag of `atropos train grpo --trainer template_name`."""

    learning_rate: float = Field(default=1e-5, gt=0, description="Step size of AdamW.")


class TemplateName(Trainer):
    """One AdamW step per batch of groups, on the sampled tokens of every reply with a positive advantage."""

    name = "template_name"
    methods = ("grpo",)
    Config = TemplateNameConfig

    def check(self, plan: TrainPlan) -> JsonDict:
        assert plan.rollouts is not None
        return {"rows_per_step": plan.prompts_per_step * plan.rollouts.group_size}

    def train(self, plan: TrainPlan, context: TrainContext) -> TrainResult:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        kept = newest(context.folder / "checkpoints") if context.resume else None
        source = str(kept) if kept is not None else plan.model
        model = AutoModelForCausalLM.from_pretrained(source).train()
        tokenizer = AutoTokenizer.from_pretrained(source)
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.config.learning_rate)
        step = 0
        if kept is not None:
            state = torch.load(kept / "optimizer.pt", weights_only=True)
            optimizer.load_state_dict(state["optimizer"])
            step = state["step"]
        context.adopt(model, tokenizer)
        context.evaluate(step)
        last = plan.steps or 100
        loss = 0.0
        while step < last:
            size = plan.prompts_per_step
            found = context.roll(range(step * size, (step + 1) * size), step=step)
            rows = [row for groups in found for group in groups for row in winners(group)]
            optimizer.zero_grad()
            loss = 0.0
            for row in rows:
                share = imitation(model, row) / len(rows)
                share.backward()
                loss += share.item()
            optimizer.step()
            step += 1
            context.report(step, {"loss": loss, "rows": len(rows)})
            if step % (plan.save_every or 10) == 0 or step == last or context.stopping:
                save(context.folder / "checkpoints" / f"step-{step}", model, tokenizer, optimizer, step)
            if context.stopping:
                return TrainResult(output=str(context.folder / "checkpoints"), steps=step, stopped="interrupted")
            if context.should_evaluate(step):
                context.evaluate(step)
        context.evaluate(last, final=True)
        output = context.folder / "model"
        model.save_pretrained(output)
        tokenizer.save_pretrained(output)
        return TrainResult(output=str(output), steps=step, metrics={"loss": loss})


def winners(group: ScoredGroup) -> list[TokenSequence]:
    """The training rows of the rollouts that did better than their group."""
    pairs = zip(group.rollouts, group.advantages or (), strict=False)
    return [row for rollout, advantage in pairs if (advantage or 0.0) > 0 for row in token_sequences(rollout)]


def imitation(model: Any, row: TokenSequence) -> Any:
    """Mean negative log-likelihood of the tokens that were sampled; the prompt's tokens carry no gradient."""
    import torch

    ids = torch.tensor([row.ids])
    mask = torch.tensor([row.mask[1:]])
    logprobs = model(ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    return -(logprobs * mask).sum() / mask.sum()


def save(folder: Path, model: Any, tokenizer: Any, optimizer: Any, step: int) -> None:
    """A checkpoint is whole or not there: it is made beside its place and renamed."""
    import torch

    draft = folder.with_name(f".{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    model.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    torch.save({"optimizer": optimizer.state_dict(), "step": step}, draft / "optimizer.pt")
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)


def newest(folder: Path) -> Path | None:
    """The checkpoint with the highest step; None without one."""
    found = sorted(folder.glob("step-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return found[-1] if found else None
