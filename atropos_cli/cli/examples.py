"""Two to four command lines at the end of each --help. A test gives every one of them to the parser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "atropos": (
        "atropos gen arithmetic --model smollm2 --limit 20 --output runs/sums",
        "atropos view runs/sums",
        "atropos train grpo",
    ),
    "atropos gen": (
        "atropos gen arithmetic --model smollm2 --limit 20",
        "atropos gen textworld --base-url http://gpu1:8000/v1 --workers 64 --output runs/play",
        "atropos gen ./my_env.py:MyEnv --dry-run",
    ),
    "atropos gen ENV": (
        "atropos gen {env} --limit 20 --group-size 4 --output runs/a",
        "atropos gen {env} --model Qwen/Qwen3-8B --base-url http://gpu1:8000/v1 --workers 64",
        "atropos gen {env} --limit 20 --group-size 4 --output runs/a --resume",
    ),
    "atropos eval": (
        "atropos eval arithmetic_eval --model smollm2",
        "atropos eval gsm8k --base-url http://gpu1:8000/v1 --limit 200 --samples 4 --k 4",
    ),
    "atropos eval ENV": (
        "atropos eval {env} --model smollm2 --limit 50",
        "atropos eval {env} --base-url http://gpu1:8000/v1 --samples 4 --k 4",
        "atropos eval {env} --model smollm2 --baseline runs/earlier --output runs/now",
    ),
    "atropos run": ("atropos run runs/a", "atropos run runs/a/plan.json --dry-run"),
    "atropos runs": (
        "atropos runs",
        "atropos runs /data/experiments --state running --json",
        "atropos runs --env textworld --since 2d -n 20",
    ),
    "atropos push": (
        "atropos push sft.jsonl me/sums --private",
        "atropos push runs/a me/rollouts --dry-run",
    ),
    "atropos serve": (
        "atropos serve queue",
        "atropos serve queue --port 8100 --max-queue 10000",
    ),
    "atropos prompt-gen": (
        "atropos prompt-gen runs/a --output prompts.parquet --format verl",
        "atropos prompt-gen runs/a --output prompts.jsonl --recipe trl",
    ),
    "atropos analyze": (
        "atropos analyze runs/a",
        "atropos analyze runs/a runs/b --html report.html",
        "atropos analyze runs/a --success '>=0.5' --k 1,4,8",
    ),
    "atropos score": (
        "atropos score runs/a --reward exact_match --output scored.jsonl",
        "atropos score runs/a --reward ./my_reward.py:mine --reward length=0.1 --workers 8 --output scored.jsonl",
    ),
    "atropos filter": (
        "atropos filter runs/a --min-score 0.5 --dedup exact --output kept.jsonl",
        "atropos filter runs/a --drop-equal --drop-truncated --dry-run",
        "atropos filter 'runs/*/groups.jsonl' --where \"len(text) < 2000\" --output short.jsonl",
    ),
    "atropos merge": (
        "atropos merge runs/shard-* --output runs/whole",
        "atropos merge a.jsonl b.jsonl --output both.jsonl.zst",
    ),
    "atropos sft-gen": (
        "atropos sft-gen runs/a --output sft.jsonl",
        "atropos sft-gen runs/a --format sharegpt --select top --top 2 --min-score 0.5 --output sft.jsonl",
        "atropos sft-gen runs/a --format tokens --tokenizer Qwen/Qwen3-8B --max-tokens 4096 --output sft.parquet",
    ),
    "atropos dpo-gen": (
        "atropos dpo-gen runs/a --output pairs.jsonl",
        "atropos dpo-gen runs/a --policy all --max-pairs 2 --margin 0.3 --output pairs.parquet",
        "atropos dpo-gen runs/a --kto --output labelled.jsonl",
    ),
    "atropos view": (
        "atropos view runs/a",
        "atropos view runs/new --diff runs/old",
        "atropos view runs/a --export page.html --limit 50",
    ),
    "atropos train": (
        "atropos train grpo",
        "atropos train grpo --env gsm8k --model Qwen/Qwen3-0.6B --steps 100",
        "atropos train sft --data sft.jsonl --model Qwen/Qwen3-0.6B",
    ),
    "atropos train grpo": (
        "atropos train grpo",
        "atropos train grpo --env arithmetic --env.kind add --model smollm2 --steps 50 --eval arithmetic:limit=40",
        "atropos train grpo --env gsm8k --model Qwen/Qwen3-8B --lora-r 16 --processes 8 --track wandb",
        "atropos train grpo --resume --output runs/learn",
    ),
    "atropos train sft": (
        "atropos train sft --data sft.jsonl --model Qwen/Qwen3-0.6B",
        "atropos train sft --data runs/a --model smollm2 --lora-r 16 --learning-rate 2e-4",
    ),
    "atropos train dpo": (
        "atropos train dpo --data pairs.jsonl --model Qwen/Qwen3-0.6B",
        "atropos train dpo --data pairs.jsonl --model runs/sft/model --beta 0.05 --dry-run",
    ),
    "atropos train kto": (
        "atropos train kto --data labelled.jsonl --model Qwen/Qwen3-0.6B --lora-r 16",
        "atropos train kto --data runs/mine --model smollm2 --steps 50",
    ),
    "atropos train reward": (
        "atropos train reward --data pairs.jsonl --model Qwen/Qwen3-0.6B --lora-r 16",
        "atropos train reward --data runs/mine --model smollm2 --steps 50",
    ),
    "atropos train ppo": (
        "atropos train ppo --env gymnasium:CartPole-v1",
        "atropos train ppo --env gymnasium:FetchReachDense-v4 --output runs/reach --track wandb",
    ),
    "atropos train sac": (
        "atropos train sac --env gymnasium:FetchReach-v4",
        "atropos train sac --env gymnasium:FetchReach-v4 --resume --output runs/reach",
    ),
    "atropos train lerobot": (
        "atropos train lerobot --policy act --dataset recordings --steps 20000",
        "atropos train lerobot --policy smolvla --dataset OWNER/NAME --steps 20000 --dry-run",
    ),
    "atropos train groot": (
        "atropos train groot --dataset OWNER/NAME --steps 10000",
        "atropos train groot --dataset recordings --tune projector --steps 10000 --dry-run",
    ),
    "atropos reevaluate": (
        "atropos reevaluate runs/learn",
        "atropos reevaluate runs/learn --checkpoint step-20 --dry-run",
    ),
    "atropos journal": ("atropos journal", "atropos journal runs --output JOURNAL.md"),
    "atropos launch-skyrl": (
        "atropos launch-skyrl Qwen/Qwen3-0.6B --engine-python skyrl/bin/python --detach",
        "atropos launch-skyrl --status",
    ),
    "atropos launch-vllm": (
        "atropos launch-vllm Qwen/Qwen3-8B --detach",
        "atropos launch-vllm Qwen/Qwen3-8B --gpus 8 --tp 2 --dry-run",
        "atropos launch-vllm --status",
        "atropos launch-vllm Qwen/Qwen3-8B -- --enable-prefix-caching",
    ),
    "atropos launch-sglang": (
        "atropos launch-sglang Qwen/Qwen3-8B --detach",
        "atropos launch-sglang Qwen/Qwen3-8B --gpus 8 --tp 2 --dry-run",
        "atropos launch-sglang --stop --name Qwen3-8B",
        "atropos launch-sglang Qwen/Qwen3-8B -- --schedule-policy lpm",
    ),
    "atropos job": (
        "atropos job submit --on slurm --time 1h -- gen textworld --limit 100 --output runs/play",
        "atropos job list",
        "atropos job logs runs/play --follow",
    ),
    "atropos job submit": (
        "atropos job submit --on tmux -- gen textworld --limit 100 --output runs/play",
        "atropos job submit --on slurm --time 4h -- train grpo --output runs/learn",
    ),
    "atropos job status": ("atropos job status runs/play", "atropos job status 12345 --json"),
    "atropos job logs": ("atropos job logs runs/play --follow", "atropos job logs 12345 server0"),
    "atropos job cancel": ("atropos job cancel runs/play", "atropos job cancel 12345 12346"),
    "atropos job list": ("atropos job list", "atropos job list --json"),
    "atropos slurm": (
        "atropos slurm submit --time 1h -- gen textworld --limit 100 --output runs/play",
        "atropos slurm list",
        "atropos slurm logs runs/play --follow",
    ),
    "atropos slurm submit": (
        "atropos slurm submit --time 1h -- gen textworld --limit 100 --output runs/play",
        "atropos slurm submit --array 8 --time 2h -- gen gsm8k --output runs/wide",
        "atropos slurm submit --gpus-per-node 8 --serve vllm --model Qwen/Qwen3-8B -- gen gsm8k --output runs/a",
        "atropos slurm submit pipeline.toml --dry-run",
    ),
    "atropos slurm status": ("atropos slurm status runs/play", "atropos slurm status 12345 --json"),
    "atropos slurm logs": ("atropos slurm logs runs/play --follow", "atropos slurm logs 12345 server0"),
    "atropos slurm cancel": ("atropos slurm cancel runs/play", "atropos slurm cancel 12345 12346"),
    "atropos slurm list": ("atropos slurm list", "atropos slurm list --json"),
    "atropos tmux": (
        "atropos tmux run --name play -- gen textworld --limit 100 --output runs/play",
        "atropos tmux list",
        "atropos tmux logs play",
    ),
    "atropos tmux run": (
        "atropos tmux run --name play -- gen textworld --limit 100 --output runs/play",
        "atropos tmux run --host me@gpu1 --cwd work -- train grpo --output runs/learn",
    ),
    "atropos tmux status": ("atropos tmux status play", "atropos tmux status play --json"),
    "atropos tmux logs": ("atropos tmux logs play", "atropos tmux logs play --follow"),
    "atropos tmux stop": ("atropos tmux stop play", "atropos tmux stop play --host me@gpu1"),
    "atropos tmux attach": ("atropos tmux attach play", "atropos tmux attach play --host me@gpu1"),
    "atropos tmux list": ("atropos tmux list", "atropos tmux list --host me@gpu1"),
    "atropos pipeline": (
        "atropos pipeline run pipeline.toml --dry-run",
        "atropos pipeline run pipeline.toml --output runs/p",
        "atropos pipeline status runs/p",
    ),
    "atropos pipeline run": (
        "atropos pipeline run pipeline.toml --dry-run",
        "atropos pipeline run pipeline.toml --output runs/p --resume",
        "atropos pipeline run pipeline.toml --on slurm --profile big",
    ),
    "atropos pipeline status": ("atropos pipeline status runs/p", "atropos pipeline status runs/p --json"),
    "atropos env": ("atropos env list", "atropos env info textworld", "atropos env check ./my_env.py:MyEnv"),
    "atropos env list": ("atropos env list", "atropos env list --json"),
    "atropos env info": ("atropos env info textworld", "atropos env info ./my_env.py:MyEnv --json"),
    "atropos env tasks": (
        "atropos env tasks arithmetic --limit 100 --output tasks.jsonl",
        "atropos env tasks gsm8k --output tasks.parquet --format verl",
    ),
    "atropos env tasks ENV": (
        "atropos env tasks {env} --limit 100 --output tasks.jsonl",
        "atropos env tasks {env} --output tasks.parquet --format verl",
    ),
    "atropos env check": ("atropos env check arithmetic --limit 50", "atropos env check ./my_env.py:MyEnv"),
    "atropos env check ENV": ("atropos env check {env} --limit 50", "atropos env check {env} --json"),
    "atropos env add": (
        "atropos env add atroposlib",
        "atropos env add atroposlib quiz --from ./quiz.py:QuizEnv --with matplotlib",
        "atropos env add atroposlib --python ~/venvs/atroposlib/bin/python",
        "atropos env add verifiers wordle --from ./environments/wordle",
    ),
    "atropos env remove": ("atropos env remove atroposlib quiz", "atropos env remove atroposlib"),
    "atropos env import": ("atropos env import ./atropos", "atropos env import ./atropos/environments --json"),
    "atropos export": ("atropos export verifiers arithmetic", "atropos export verifiers arithmetic --output ./sums"),
    "atropos export verifiers": (
        "atropos export verifiers arithmetic",
        "atropos export verifiers arithmetic --difficulty easy --output ./sums",
    ),
    "atropos export verifiers ENV": ("atropos export verifiers {env}", "atropos export verifiers {env} --seed 1"),
    "atropos serve-env": ("atropos serve-env arithmetic", "atropos serve-env tools-demo --port 8001 --sessions 16"),
    "atropos serve-env ENV": ("atropos serve-env {env}", "atropos serve-env {env} --port 0 --sessions 16"),
    "atropos reward": ("atropos reward list", "atropos reward list --json"),
    "atropos reward list": ("atropos reward list", "atropos reward list --json"),
    "atropos trainer": ("atropos trainer list", "atropos trainer list --json"),
    "atropos trainer list": ("atropos trainer list", "atropos trainer list --json"),
    "atropos plugins": ("atropos plugins list", "atropos plugins check textworld"),
    "atropos plugins list": ("atropos plugins list", "atropos plugins list --json"),
    "atropos plugins check": ("atropos plugins check", "atropos plugins check textworld --json"),
    "atropos new": ("atropos new environment my-env", "atropos new reward my-reward --into plugins"),
    "atropos config": ("atropos config show", "atropos config show gen arithmetic --temperature 0"),
    "atropos config show": (
        "atropos config show",
        "atropos config show gen arithmetic --temperature 0",
        "atropos config show train grpo --env gsm8k",
        "atropos config show slurm",
    ),
    "atropos config show gen ENV": ("atropos config show gen {env}", "atropos config show gen {env} --json"),
    "atropos config show eval ENV": ("atropos config show eval {env}", "atropos config show eval {env} --json"),
    "atropos config show gen": (
        "atropos config show gen arithmetic",
        "atropos config show gen arithmetic --workers 32",
    ),
    "atropos config show eval": (
        "atropos config show eval arithmetic",
        "atropos config show eval arithmetic --model smollm2",
    ),
    "atropos config show train": ("atropos config show train", "atropos config show train sft --data sft.jsonl"),
    "atropos config show launch": ("atropos config show launch", "atropos config show launch --json"),
    "atropos config show slurm": ("atropos config show slurm", "atropos config show slurm --config cluster.toml"),
    "atropos prefetch": (
        "atropos prefetch --model Qwen/Qwen3-8B --env gsm8k",
        "atropos prefetch --dataset openai/gsm8k:main --json",
    ),
    "atropos doctor": ("atropos doctor", "atropos doctor --base-url http://gpu1:8000/v1"),
}
"""By the path of the command, where ENV stands for the name of any environment."""
_BY_ENVIRONMENT = tuple(path.removesuffix(" ENV") for path in EXAMPLES if path.endswith(" ENV"))


def examples_of(path: str) -> tuple[str, ...]:
    """The examples of the command at a path, e.g. "atropos gen textworld"."""
    found = EXAMPLES.get(path)
    if found is not None:
        return found
    for group in _BY_ENVIRONMENT:
        if path.startswith(f"{group} ") and "{" not in path:
            name = path.removeprefix(f"{group} ")
            return tuple(line.replace("{env}", name) for line in EXAMPLES[f"{group} ENV"])
    if path.startswith("atropos config show train ") and path.count(" ") == 4:
        return (path, f"{path} --json")
    return ()


def write_examples(ctx: Any, formatter: Any) -> None:
    """A section of the help, one line each, never wrapped: they are there to be copied."""
    lines = examples_of(ctx.command_path)
    if lines:
        with formatter.section("Examples"):
            for line in lines:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
