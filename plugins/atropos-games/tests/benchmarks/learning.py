"""Does self-play teach tic-tac-toe? A model of 100,000 weights, from scratch, on one CPU core.

    python plugins/atropos-games/tests/benchmarks/learning.py FOLDER [--seeds 0 1 2] [--steps 100]

1. A llama of two layers with a tokenizer of 13 words, random weights.
2. SFT on random legal moves, so that it knows the form of a move and the rules.
3. For each seed GRPO by self-play with role-conditioned advantages.
4. Games against a random and a perfect player, before and after, the policy in both seats alike.

All but the first step are commands of atropos. What is finished in FOLDER is not made again. Prints the table that
docs/how-to/play-games.md shows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

WORDS = ["<pad>", "</s>", *"XO123456789"]
TEMPLATE = (
    "{% set last = namespace(at=0) %}"
    "{% for m in messages %}{% if m['role'] == 'user' %}{% set last.at = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages[last.at:] %}{{ m['content'] }}{% if m['role'] == 'assistant' %}</s>{% endif %}{% endfor %}"
)
"""The board at hand alone: each turn is a sequence of its own."""
PROMPT = 'system = ""\nturn = "{{ mark }}{{ line }}"\n'
MOVER = '''"""A player that makes any legal move."""

import random


def reply(messages, request):
    line = messages[-1].text[1:]
    rng = random.Random(f"{request.seed}:{len(messages)}")
    return rng.choice([cell for cell in line if cell not in "XO"])
'''
OPPONENTS = ("random", "perfect")


def make_model(folder: Path) -> None:
    """A random llama and its tokenizer."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    raw.add_special_tokens(["<pad>", "</s>"])
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    raw.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    sizes = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=len(WORDS), pad_token_id=0, bos_token_id=None, eos_token_id=1, **sizes)
    config.max_position_embeddings = 128
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


class Bench:
    """Commands in a folder, and what they cost."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.costs: dict[str, float] = json.loads(self._file.read_text()) if self._file.exists() else {}

    @property
    def _file(self) -> Path:
        return self.folder / "cpu.json"

    def atropos(self, name: str, *words: str) -> None:
        """Run a command once; its CPU seconds are kept by name."""
        if name in self.costs:
            return
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        with (self.folder / f"{name}.log").open("w") as log:
            log.write(" ".join(["atropos", *words]) + "\n")
            log.flush()
            command = [sys.executable, "-m", "atropos_cli", *words]
            subprocess.run(command, cwd=self.folder, env=env, stdout=log, stderr=log, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.costs[name] = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
        self._file.write_text(json.dumps(self.costs, indent=1))

    def evaluate(self, name: str, model: str, opponent: str, games: int) -> dict[str, Any]:
        """The rates of outcomes against an opponent, half of the games from each seat."""
        flags = (
            "--workers",
            "64",
            "--opponent",
            opponent,
            "--prompt",
            "line.toml",
            "--max-tokens",
            "2",
            "--temperature",
            "1",
        )
        run = f"{name}-{opponent}"
        self.atropos(run, *("eval", "games", *flags, "--model", model, "--limit", str(games), "--output", run))
        found: dict[str, Any] = json.loads((self.folder / run / "eval.json").read_text())
        return found


def main() -> None:
    """Make what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--sft-steps", type=int, default=250)
    parser.add_argument("--games", type=int, default=400)
    parser.add_argument("--learning-rate", default="1e-3")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(given.folder)
    (given.folder / "line.toml").write_text(PROMPT)
    (given.folder / "mover.py").write_text(MOVER)
    if not (given.folder / "tiny").exists():
        make_model(given.folder / "tiny")
    scripted = ("--backend", "scripted", "--backend.function", "./mover.py:reply")
    play = ("games", "--prompt", "line.toml", "--limit", "1500", "--group-size", "1")
    bench.atropos("gen", "gen", *play, *scripted, "--output", "moves")
    bench.atropos(
        "rows", "sft-gen", "moves", "--select", "all", "--keep-duplicates", "--split-turns", "--output", "rows.jsonl"
    )
    sizes = ("--steps", str(given.sft_steps), "--prompts-per-step", "64", "--learning-rate", "3e-3")
    bench.atropos("sft", "train", "sft", "--data", "rows.jsonl", "--model", "tiny", *sizes, "--output", "sft")
    models = {"before": "sft/model"}
    for seed in given.seeds:
        self_play = ("--env", "games", "--env.game", "tictactoe", "--prompt", "line.toml", "--advantage", "rae")
        trainer = ("--trainer", "native", "--advantages", "own", "--algorithm", "dr_grpo")
        sizes = ("--steps", str(given.steps), "--prompts-per-step", "4", "--group-size", "8", "--max-tokens", "2")
        sizes += ("--workers", "64")
        rates = ("--learning-rate", given.learning_rate, "--seed", str(seed), "--save-every", "20")
        name = f"self-play-{seed}"
        words = ("train", "grpo", *self_play, *trainer, "--model", "sft/model", *sizes, *rates, "--output", name)
        bench.atropos(name, *words)
        models[f"after, seed {seed}"] = f"{name}/model"
    print(
        "| model | opponent | games | won | drawn | lost | lost by format | 95 % interval of won |\n|---"
        + "|---" * 7
        + "|"
    )
    for label, model in models.items():
        for opponent in OPPONENTS:
            found = bench.evaluate(label.replace(", seed ", "-"), model, opponent, given.games)
            rates = [f"{found['metrics'][name]:.3f}" for name in ("won", "drawn", "lost", "lost_by_format")]
            interval = f"{found['accuracy']['low']:.3f} to {found['accuracy']['high']:.3f}"
            print(f"| {label} | {opponent} | {found['scored']} | {' | '.join(rates)} | {interval} |")
    print(json.dumps(bench.costs))


if __name__ == "__main__":
    main()
