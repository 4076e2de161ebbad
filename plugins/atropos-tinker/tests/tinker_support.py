"""A small model, an environment for it, and training runs in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from atropos_training.watching import SilentWatcher

from atropos_cli.sdk.backends import Sampling
from atropos_cli.sdk.runs import ComponentRef, Plan, RewardRef
from atropos_cli.sdk.training import TrainPlan

WORDS = ["x", "</s>", *"0123456789", *"abcdefgh"]

ENVIRONMENT = '''
import os
import signal

from atropos_cli.sdk import Environment, Task, reward, user

LETTERS = "abcdefgh"
left = [int(os.environ.get("LETTERS_SIGNAL_AFTER", "-1"))]


@reward
def even(task, rollout):
    """Share of even digits in what the model wrote."""
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), getattr(signal, os.environ["LETTERS_SIGNAL"]))
    return sum(letter in "02468" for letter in rollout.text) / 4


@reward
def nothing(task, rollout):
    return 0.0


class Letters(Environment):
    name = "letters"
    rewards = (even,)
    splits = ("train", "test")

    def tasks(self, split):
        pairs = [(a, b) for a in LETTERS for b in LETTERS if (a == b) == (split == "test")]
        return [Task(id=f"{split}-{a}{b}", prompt=(user(a + b),), answer="0") for a, b in pairs]


class Flat(Letters):
    name = "flat"
    rewards = (nothing,)
'''


def make_small(folder: Path) -> Path:
    """A two-layer Qwen3, 32 wide, over 20 words. Its weights are wide enough that an adapter can move its logits."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="x"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    raw.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="</s>", eos_token="</s>")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'assistant' %}</s>{% endif %}{% endfor %}"
    )
    config = Qwen3Config(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=64,
        initializer_range=0.2,
        tie_word_embeddings=False,
        pad_token_id=1,
        bos_token_id=None,
        eos_token_id=1,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_plan(model: Path, url: str, *, environment: str | None = None, **fields: Any) -> TrainPlan:
    """A plan of the trainer `tinker`. config: more of its options. suites: evaluate on the environment."""
    from atropos_cli.sdk.training import EvalSuite

    config = {"learning_rate": 0.02, "lora_r": 4, **fields.pop("config", {})}
    rollouts, suites = None, ()
    if environment is not None:
        rollouts = Plan(
            atropos_version="0",
            environment=ComponentRef(name=environment),
            rewards=(RewardRef(name="nothing" if environment.endswith("Flat") else "even"),),
            backend=ComponentRef(name="tinker"),
            model=str(model),
            sampling=Sampling(max_tokens=4, temperature=fields.pop("temperature", 1.0)),
            logprobs="require",
            group_size=fields.pop("group_size", 4),
        )
        if fields.pop("evaluated", False):
            greedy = rollouts.replace(
                sampling=Sampling(max_tokens=4, temperature=0.0), group_size=1, split="test", logprobs="off"
            )
            suites = (EvalSuite(name="letters", plan=greedy.replace(advantage="none")),)
    values = {"atropos_version": "0", "method": "grpo", "learns": "groups", "model": str(model), **fields}
    values = {"prompts_per_step": 4, "access": {"base_url": url, "max_wait": 3.0}, **values}
    return TrainPlan(trainer=ComponentRef(name="tinker", config=config), rollouts=rollouts, suites=suites, **values)


def run(plan: TrainPlan, folder: Path, *, resume: bool = False, said: list[str] | None = None) -> Any:
    """Train by the real engine."""
    from atropos_tinker.trainer import TinkerTrainer
    from atropos_training.run import run_train

    from atropos_cli.console.session import Session

    trainer = TinkerTrainer(TinkerTrainer.Config.model_validate({**plan.trainer.config, **plan.access}))
    begin: Any = "resume" if resume else "new"
    watcher = Told([] if said is None else said)
    return run_train(plan, trainer, folder=folder, registry=Session().registry, begin=begin, watcher=watcher)


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


def groups(folder: Path) -> list[dict[str, Any]]:
    """The groups of a run."""
    return [json.loads(line) for line in (folder / "groups.jsonl").read_text().splitlines()]


def local_logprobs(model: Path, prompt: list[int], reply: list[int]) -> list[float]:
    """What the backend `local` says of a reply, with the weights of a folder."""
    import asyncio

    from atropos_cli.sdk.backends import make_backend

    async def score() -> list[float]:
        backend = make_backend("local", {"device": "cpu", "dtype": "float32"}, model=str(model))
        await backend.open()
        try:
            return list(await backend.score(prompt, reply))
        finally:
            await backend.close()

    return asyncio.run(score())
