"""Options of other tools: what they mean here, or what to type instead. Tables only; `habits` applies them."""

from __future__ import annotations

from collections.abc import Mapping

from atropos_cli.cli.peercommands import COMMAND_HINTS as COMMAND_HINTS
from atropos_cli.cli.peercommands import COMMANDS as COMMANDS
from atropos_cli.cli.peercommands import Words as Words

_OUTPUT = dict.fromkeys(
    ("--out", "--out-dir", "--output-dir", "--output-path", "--output-file", "--outfile", "--save-to", "--save-path"),
    ("--output",),
)
_ROLLOUTS: dict[str, Words] = {
    **_OUTPUT,
    "--log-dir": ("--output",),
    "-n": ("--limit",),
    **dict.fromkeys(
        ("--num-examples", "--max-examples", "--max-samples", "--num-prompts", "--num-tasks", "--num-problems"),
        ("--limit",),
    ),
    **dict.fromkeys(
        ("--concurrency", "--max-concurrent", "--max-concurrency", "--max-concurrent-requests", "--max-connections"),
        ("--workers",),
    ),
    **dict.fromkeys(("--num-workers", "--max-num-workers", "--parallel", "--num-concurrent"), ("--workers",)),
    **dict.fromkeys(("-m", "--model-name", "--model-id", "--model-name-or-path"), ("--model",)),
    **dict.fromkeys(("--api-base-url", "--api-base", "--openai-base-url", "--model-base-url"), ("--base-url",)),
    "--openai.base-url": ("--base-url",),
    "--openai.model-name": ("--model",),
    "--sampling.temperature": ("--temperature",),
    "--sampling.max-tokens": ("--max-tokens",),
    "--sampling.top-p": ("--top-p",),
    "--api-key-var": ("--api-key-env",),
    "--temp": ("--temperature",),
    **dict.fromkeys(("--max-new-tokens", "--max-completion-tokens", "--max-gen-toks"), ("--max-tokens",)),
    **dict.fromkeys(("--reward-funcs", "--reward-func", "--reward-fn", "--reward-function"), ("--reward",)),
    **dict.fromkeys(("--stop-seqs", "--stop-sequences"), ("--stop",)),
    "--random-seed": ("--seed",),
    "--timeout": ("--request-timeout",),
}
# In training they mean something else, or there is no server.
_NOT_IN_TRAINING = ("-n", "--log-dir", "--num-examples", "--num-workers", "--base-url", "--api-key-env")
_TRAIN: dict[str, Words] = {
    **{name: words for name, words in _ROLLOUTS.items() if not {name, *words} & set(_NOT_IN_TRAINING)},
    "--num-generations": ("--group-size",),
    "--environment": ("--env",),
    "--max-steps": ("--steps",),
    "--num-steps": ("--steps",),
    "--lr": ("--learning-rate",),
    "--save-steps": ("--save-every",),
    "--eval-steps": ("--eval-every",),
    "--save-total-limit": ("--keep-checkpoints",),
    "--report-to": ("--track",),
    "--wandb-project": ("--project",),
    "--wandb-name": ("--run-name",),
    "--kl-coef": ("--beta",),
    "--lora-rank": ("--lora-r",),
    "--num-processes": ("--processes",),
    "--nproc-per-node": ("--processes",),
    "--per-device-batch-size": ("--per-device-train-batch-size",),
    "--train-file": ("--data",),
}
_ENGINE: dict[str, Words] = {
    "--tensor-parallel-size": ("--tp",),
    "--tp-size": ("--tp",),
    "--max-model-len": ("--context",),
    "--context-length": ("--context",),
    "--gpu-memory-utilization": ("--memory-fraction",),
    "--mem-fraction-static": ("--memory-fraction",),
    "--max-num-seqs": ("--max-requests",),
    "--max-running-requests": ("--max-requests",),
    "--num-gpus": ("--gpus",),
    "--served-model-name": ("--served-name",),
    "--tool-call-parser": ("--tool-parser",),
    "--enforce-eager": ("--eager",),
}
OPTIONS: Mapping[str, Mapping[str, Words]] = {
    "gen": {
        **_ROLLOUTS,
        "--num-generations": ("--group-size",),
        "--num-rollouts": ("--group-size",),
        "--rollouts-per-example": ("--group-size",),
        "--rollouts-per-prompt": ("--group-size",),
        "--samples-per-prompt": ("--group-size",),
        "--samples": ("--group-size",),
        "-r": ("--group-size",),
        "--total-steps": ("--limit",),
        "--env.group-size": ("--group-size",),
        "--env.total-steps": ("--limit",),
        "--env.max-num-workers": ("--workers",),
    },
    "eval": {
        **_ROLLOUTS,
        "--rollouts-per-example": ("--samples",),
        "-r": ("--samples",),
        "--epochs": ("--samples",),
        "--n-samples": ("--samples",),
        "--num-generations": ("--samples",),
    },
    "train": _TRAIN,
    "sft-gen": {
        **_OUTPUT,
        "--save-top-n-per-group": ("--select", "top", "--top"),
        "--minimum-score-diff-max-min": ("--min-gap",),
        "--max-token-len": ("--max-tokens",),
    },
    "dpo-gen": {
        **_OUTPUT,
        "--minimum-score-diff-max-min": ("--margin",),
        "--max-token-len": ("--max-tokens",),
    },
    "score": {
        **_OUTPUT,
        "--reward-funcs": ("--reward",),
        "--concurrency": ("--workers",),
        "--timeout": ("--deadline",),
    },
    "filter": {**_OUTPUT, "--min-reward": ("--min-score",), "--max-reward": ("--max-score",)},
    "merge": _OUTPUT,
    "analyze": {"--report": ("--html",)},
    "view": {"--out": ("--export",), "--output": ("--export",), "-o": ("--export",), "-p": ("--port",)},
    "launch-vllm": _ENGINE,
    "launch-sglang": _ENGINE,
    "slurm": {
        "-N": ("--nodes",),
        "-t": ("--time",),
        "-J": ("--name",),
        "--job-name": ("--name",),
        "-c": ("--cpus",),
        "--cpus-per-task": ("--cpus",),
        "--memory": ("--mem",),
        "--tail": ("--follow",),
    },
    "prefetch": {"-m": ("--model",), "--model-name": ("--model",), "--data": ("--dataset",)},
    "new": {"--output": ("--into",), "-o": ("--into",), "--path": ("--into",), "-p": ("--into",)},
}
"""By command: an option of another tool, and the words of ours that mean it; the last of them takes its value."""

_KEY = "a key stands in a variable: export OPENAI_API_KEY=..., or --api-key-env NAME"
_HINTS: dict[str, str] = {
    "--n": "--group-size N: rollouts of a task; --limit N: tasks",
    "-c": "--workers N: requests at once; --config FILE: a configuration file",
    "--num-samples": "--group-size N: rollouts of a task; --limit N: tasks",
    "--batch-size": "--workers N: requests at once",
    "--max-retries": "--retries N: for all requests of a group together",
    "--api-key": _KEY,
    "--env-args": "each option of the environment is a flag: atropos env info ENV",
    "-k": "--api-key-env NAME: the variable that holds the key",
    "-b": "--base-url URL: the server; --workers N: requests at once",
    "-T": "--temperature X; options of the environment: --env.NAME VALUE",
    "-t": "--max-tokens N: of a reply",
    "--openai.api-key": _KEY,
    "--env.max-token-length": "--max-tokens N: of a reply",
    "--env.data-path-to-save-groups": "--output RUN names a folder; groups are in its *.jsonl files",
    "-a": "each option of the environment is a flag: atropos env info ENV",
    "--env-id": "the environment is the first argument: atropos gen ENV",
    "-e": "the environment is the first argument: atropos gen ENV",
    "--task": "the environment is the first argument: atropos eval ENV",
    "--tasks": "the environment is the first argument: atropos eval ENV",
    "--model-args": "options of the model's backend are flags: --backend.NAME VALUE",
    "-M": "options of the model's backend are flags: --backend.NAME VALUE",
    "--gen-kwargs": "each is a flag: --temperature, --top-p, --max-tokens",
    "--sampling-args": "each is a flag: --temperature, --top-p, --max-tokens",
    "-S": "each is a flag: --temperature, --top-p, --max-tokens",
    "--num-fewshot": "an option of the environment, where it has one: atropos env info ENV",
    "--save-results": "every run is written; --output names its folder",
    "-s": "every run is written; --output names its folder",
    "--log-samples": "every run is written; --output names its folder",
    "--push": "nothing is uploaded",
    "--no-push": "nothing is uploaded",
    "--no-wandb": "nothing is sent to a tracker unless it is asked for",
    "--reward-weights": "--reward NAME=WEIGHT, repeated",
    "--use-wandb": "nothing is sent to a tracker unless it is asked for",
}
_TRAIN_HINTS: dict[str, str] = {
    **{name: _HINTS[name] for name in ("--reward-weights", "--gen-kwargs", "--no-wandb")},
    "--use-wandb": "--track wandb",
    "-n": "--group-size N: rollouts of a task; --steps N: optimiser steps",
    "--n": "--group-size N: rollouts of a task; --steps N: optimiser steps",
    "--batch-size": "--prompts-per-step N: groups or rows of a step; --per-device-train-batch-size N: rows at a time",
    "--gradient-accumulation-steps": "--prompts-per-step N: groups or rows of a step; "
    "--per-device-train-batch-size N: rows at a time",
    "--num-train-epochs": "--steps N; without it, sft and dpo go once over the data",
    "--num-epochs": "--steps N; without it, sft and dpo go once over the data",
    "--epochs": "--steps N; without it, sft and dpo go once over the data",
    "--dataset": "a file or a run: --data PATH; a data set of the hub: --env dataset (atropos env info dataset)",
    "--dataset-name": "a file or a run: --data PATH; a data set of the hub: --env dataset (atropos env info dataset)",
    "--resume-from-checkpoint": "--resume --output RUN goes on from the newest checkpoint",
    "--logging-steps": "every step is logged; --eval-every N and --save-every N say when to evaluate and to save",
    "--use-peft": "--lora-r 16",
    "--bf16": "--precision bf16",
    "--fp16": "--precision auto, fp32 or bf16",
    "--use-vllm": "--backend vllm samples with vLLM in this process",
    "--max-prompt-length": "--max-prompt-tokens N: longer prompts are left out, not cut",
    "--max-seq-length": "--max-length N: longer rows are left out, not cut",
    "--loss-type": "--algorithm grpo, dr_grpo, dapo, bnpo, gspo, cispo or rloo",
    "--wandb-entity": "export WANDB_ENTITY=NAME, or write it into .env",
    "--wandb-group": "export WANDB_RUN_GROUP=NAME, or write it into .env",
    "--deepspeed": "--processes N starts N processes, each with the whole model and a GPU",
    "--method": "the method is the first argument: atropos train grpo",
}
_STORED = "rows are made of stored rollouts: atropos gen ENV --output RUN, then atropos {} RUN"
_ROWS: dict[str, str] = {
    "--append-to-previous": "write another file, then join them: atropos merge A B --output FILE",
    "--num-seqs-to-save": "fewer groups: atropos gen ENV --limit N, or atropos filter INPUT --max-per-task N",
}
OPTION_HINTS: Mapping[str, Mapping[str, str]] = {
    "gen": {**_HINTS, "--epochs": "--group-size N: rollouts of a task"},
    "eval": _HINTS,
    "train": _TRAIN_HINTS,
    "sft-gen": {**_ROWS, "--api-url": _STORED.format("sft-gen")},
    "dpo-gen": {
        **_ROWS,
        "--api-url": _STORED.format("dpo-gen"),
        "--save-n-pairs-per-group": "--policy all --max-pairs N, or the default: the best against the worst",
        "--allow-negative-scores": "pairs are made of any scores; --min-chosen X sets the least of the chosen",
    },
    "analyze": dict.fromkeys(("--output", "-o"), "--html FILE writes a page; --json prints what a program reads"),
    "launch-vllm": {"--model": "the model is the first argument: atropos launch-vllm MODEL"},
    "launch-sglang": {
        "--model": "the model is the first argument: atropos launch-sglang MODEL",
        "--model-path": "the model is the first argument: atropos launch-sglang MODEL",
    },
    "slurm": {
        "--partition": "--sbatch partition=NAME, or a profile: --profile NAME",
        "-p": "--sbatch partition=NAME, or a profile: --profile NAME",
        "--account": "--sbatch account=NAME, or a profile: --profile NAME",
        "-A": "--sbatch account=NAME, or a profile: --profile NAME",
        "--qos": "--sbatch qos=NAME, or a profile: --profile NAME",
        "--gres": "--gpus-per-node N",
        "--gpus": "--gpus-per-node N",
        "--output": "logs and records go to --folder DIR; the command's own --output stands behind the two dashes",
        "-o": "logs and records go to --folder DIR; the command's own --output stands behind the two dashes",
        "--dependency": "--after JOB",
        "-d": "--after JOB",
        "--ntasks": "--nodes N; a command starts once, with its servers beside it",
        "--wrap": "the command stands behind two dashes: atropos slurm submit -- gen ENV",
    },
}
"""By command: an option that means none of ours, and what to type instead."""

IGNORED: Mapping[str, Mapping[str, tuple[bool, str]]] = {
    "gen": {
        "--env.use-wandb": (True, "nothing is sent to a tracker unless it is asked for"),
        "--env.tokenizer-name": (True, "rollouts need no tokenizer"),
    },
    "sft-gen": {
        "--save-messages": (False, "rows are messages unless --format says otherwise"),
        "--group-size": (True, "groups are taken as they are stored"),
        "--tasks-per-step": (True, "nothing is fetched in steps"),
    },
    "dpo-gen": {
        "--save-messages": (False, "rows are messages unless --text is given"),
        "--group-size": (True, "groups are taken as they are stored"),
    },
}
"""By command: an option that has nothing to say here: (does a value follow, why it can be left out)."""
