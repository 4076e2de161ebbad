"""A tiny model, an environment for it, and training runs in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from atropos_training.watching import SilentWatcher

from atropos_cli.sdk.backends import Sampling
from atropos_cli.sdk.runs import ComponentRef, Plan, RewardRef
from atropos_cli.sdk.training import TrainPlan

WORDS = ["x", "</s>", *"0123456789", *"abcdefgh"]
DIGITS = {str(n) for n in range(10)}

ENVIRONMENT = '''
from atropos_cli.sdk import Environment, Episode, Task, reward, user

LETTERS = "abcdefgh"


@reward
def digits(task, rollout):
    """Share of even digits in all that the model wrote."""
    text = "".join(m.text for m in rollout.messages if m.role == "assistant")
    return sum(letter in "02468" for letter in text) / 8


@reward
def nothing(task, rollout):
    return 0.0


class Letters(Environment):
    name = "letters"
    rewards = (digits,)

    def tasks(self, split):
        pairs = [(a, b) for a in LETTERS for b in LETTERS]
        return [Task(id=f"{split}-{a}{b}", prompt=(user(a + b),), answer="0") for a, b in pairs]


class Flat(Letters):
    name = "flat"
    rewards = (nothing,)


class TwoTurns(Letters):
    name = "two-turns"

    def episode(self, task):
        return Twice(task)


class Twice(Episode):
    def __init__(self, task):
        self.task = task
        self.turn = 0

    async def reset(self):
        return list(self.task.prompt)

    async def step(self, reply):
        self.turn += 1
        return [user("ab")] if self.turn == 1 else None
'''


def make_tiny(folder: Path, **changes: Any) -> Path:
    """A two-layer llama, 32 wide, over 20 words; each letter and digit is a token, and text gives its tokens back."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="x"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    raw.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="</s>", eos_token="</s>")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'assistant' %}</s>{% endif %}{% endfor %}"
    )
    fields = {
        "vocab_size": len(WORDS),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
        "pad_token_id": 1,
        "bos_token_id": None,
        "eos_token_id": 1,
        **changes,
    }
    LlamaForCausalLM(LlamaConfig(**fields)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_plan(model: Path | str, *, environment: str | None = None, **fields: Any) -> TrainPlan:
    """A plan of the trainer `trl`; config: its options; group_size, max_tokens, temperature: of live rollouts."""
    config = fields.pop("config", {})
    group_size, max_tokens = fields.pop("group_size", 4), fields.pop("max_tokens", 8)
    temperature = fields.pop("temperature", 1.0)
    rollouts = None
    if environment is not None:
        rollouts = Plan(
            atropos_version="0",
            environment=ComponentRef(name=environment),
            rewards=(RewardRef(name="nothing" if environment.endswith("Flat") else "digits"),),
            backend=ComponentRef(name="local", config={"logprobs": "tempered"}),
            model=str(model),
            sampling=Sampling(max_tokens=max_tokens, temperature=temperature),
            logprobs="require",
            group_size=group_size,
        )
    values = {"atropos_version": "0", "method": "grpo", "model": str(model), "prompts_per_step": 4, **fields}
    return TrainPlan(trainer=ComponentRef(name="trl", config=config), rollouts=rollouts, **values)


def make_trainer(plan: TrainPlan) -> Any:
    """The trainer with the plan's options."""
    from atropos_trl.trainer import TrlTrainer

    return TrlTrainer(TrlTrainer.Config.model_validate(plan.trainer.config))


def run(plan: TrainPlan, folder: Path, *, resume: bool = False, said: list[str] | None = None) -> Any:
    """Train by the real engine."""
    from atropos_training.run import run_train

    from atropos_cli.console.session import Session

    registry = Session().registry
    watcher = Told([] if said is None else said)
    return run_train(
        plan, make_trainer(plan), folder=folder, registry=registry, begin="resume" if resume else "new", watcher=watcher
    )


class Told(SilentWatcher):
    """Keeps what is said."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def say(self, text: str) -> None:
        self._said.append(text)


def metrics(folder: Path, kind: str = "train") -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == kind]
