"""Commands of other tools: what they mean here, or what to type instead. Tables only; `habits` applies them."""

from __future__ import annotations

from collections.abc import Mapping

Words = tuple[str, ...]

COMMANDS: Mapping[str, Mapping[str, Words]] = {
    "atropos": {
        "generate": ("gen",),
        "process": ("gen",),
        "rollout": ("gen",),
        "rollouts": ("gen",),
        "sample": ("gen",),
        "evaluate": ("eval",),
        "benchmark": ("eval",),
        "vf-eval": ("eval",),
        "analyse": ("analyze",),
        "stats": ("analyze",),
        "rescore": ("score",),
        "init": ("new", "environment"),
        "vf-init": ("new", "environment"),
        "vf-validate": ("env", "check"),
        "vf-replay": ("score",),
        "view-run": ("view",),
        "vf-tui": ("view",),
        "tui": ("view",),
        "sft": ("train", "sft"),
        "dpo": ("train", "dpo"),
        "grpo": ("train", "grpo"),
        "trl": ("train",),
        "atropos-grpo": ("train", "grpo"),
        "atropos-sft-gen": ("sft-gen",),
        "atropos-dpo-gen": ("dpo-gen",),
        "list": ("env", "list"),
        "ls": ("env", "list"),
        "envs": ("env", "list"),
        "rlvr": ("train", "grpo"),
        "environments": ("env", "list"),
        "rewards": ("reward", "list"),
        "trainers": ("trainer", "list"),
        "plugin": ("plugins",),
        "submit": ("slurm", "submit"),
        "download": ("prefetch",),
    },
    "atropos env": {
        "ls": ("list",),
        "show": ("info",),
        "describe": ("info",),
        "inspect": ("info",),
        "test": ("check",),
    },
    "atropos reward": {"ls": ("list",)},
    "atropos trainer": {"ls": ("list",)},
    "atropos plugins": {"ls": ("list",), "test": ("check",)},
    "atropos slurm": {
        "run": ("submit",),
        "ls": ("list",),
        "queue": ("list",),
        "stop": ("cancel",),
        "kill": ("cancel",),
        "scancel": ("cancel",),
        "squeue": ("list",),
        "ps": ("list",),
        "show": ("status",),
        "info": ("status",),
        "log": ("logs",),
    },
    "atropos tmux": {"start": ("run",), "ls": ("list",), "cancel": ("stop",), "kill": ("stop",), "log": ("logs",)},
    "atropos pipeline": {"start": ("run",)},
    "atropos config": {"list": ("show",), "ls": ("show",), "get": ("show",)},
}
"""By the path of a command group: a name, and the words of ours that mean it."""

_PIP = "environments are packages: pip install NAME, then atropos env list"
_NEW = "a project of your own: atropos new environment NAME"
_SERVER = "a model server: atropos launch-vllm MODEL, or atropos launch-sglang MODEL"
_GRPO = "atropos train grpo --env ENV --model MODEL"
_TRAIN_ANY = "atropos train grpo --env ENV; on data: atropos train sft --data FILE, atropos train dpo --data FILE"
_VIEW = "a run in the browser: atropos view RUN; the list of runs: atropos runs"
_STATUS = "runs: atropos runs; jobs: atropos slurm list, atropos tmux list; servers: atropos launch-vllm --status"
_STOP = "a server: atropos launch-vllm --stop; a job: atropos slurm cancel JOB, atropos tmux stop JOB"
_NO_ACCOUNT = "no account is needed; a key for a server: export OPENAI_API_KEY=..., or --api-key-env NAME"
COMMAND_HINTS: Mapping[str, Mapping[str, str]] = {
    "atropos": {
        "create": _NEW,
        "scaffold": _NEW,
        "install": _PIP,
        "vf-install": _PIP,
        "prime": f"{_PIP}; atropos eval ENV evaluates",
        "hub": _PIP,
        "serve": f"{_SERVER}; rollouts go to files: atropos gen ENV --output runs/NAME",
        "server": _SERVER,
        "launch": _SERVER,
        "vllm": "atropos launch-vllm MODEL",
        "sglang": "atropos launch-sglang MODEL",
        "run-api": "there is no server between rollouts and trainer: atropos gen ENV --output runs/NAME, "
        "or atropos train grpo --env ENV",
        "sbatch": "atropos slurm submit -- gen ENV --output runs/NAME",
        "srun": "atropos slurm submit -- gen ENV --output runs/NAME",
        "squeue": "atropos slurm list",
        "convert": "atropos sft-gen INPUT --format sharegpt --output FILE; preference pairs: atropos dpo-gen INPUT",
        "export": "atropos sft-gen INPUT --output FILE; preference pairs: atropos dpo-gen INPUT",
        "inspect": "atropos eval ENV evaluates, atropos view RUN shows a run, atropos analyze RUN describes it",
        "lm-eval": "atropos eval ENV --model MODEL (atropos env list)",
        "simple-eval": "atropos eval ENV --model MODEL (atropos env list)",
        "eval-set": "atropos eval ENV --model MODEL, once for each",
        "eval-retry": "atropos eval ENV --resume --output RUN",
        "oaieval": "atropos eval ENV --model MODEL (atropos env list)",
        **dict.fromkeys(
            ("ppo", "rl", "reinforce", "vf-rl", "vf-train", "nemo-rl", "nemo", "verl", "main-ppo", "openrlhf"), _GRPO
        ),
        **dict.fromkeys(("train-ppo-ray", "swift", "unsloth", "rlhf", "finetune", "tune", "torchtune"), _TRAIN_ANY),
        **dict.fromkeys(("axolotl", "llamafactory-cli", "oumi", "prime-rl", "art"), _TRAIN_ANY),
        **dict.fromkeys(("accelerate", "torchrun", "deepspeed"), "atropos train grpo --processes N"),
        **dict.fromkeys(("python", "python3", "uv", "uvx", "bash", "sh"), "atropos COMMAND, without a word before it"),
        "ray": "atropos gen ENV --on ray",
        **dict.fromkeys(("vllm-serve", "launch-server", "api"), _SERVER),
        **dict.fromkeys(("ng-run", "ng-collect-rollouts"), "atropos gen ENV --output runs/NAME"),
        **dict.fromkeys(("ng-init-resources-server", "vf-build", "vf-setup"), _NEW),
        **dict.fromkeys(("ui", "web", "webui", "dashboard", "open", "show", "browse", "watch"), _VIEW),
        **dict.fromkeys(("info", "describe"), "an environment: atropos env info ENV; a run: atropos analyze RUN"),
        **dict.fromkeys(("check", "validate", "test"), "atropos env check ENV, or atropos plugins check"),
        **dict.fromkeys(("models", "model"), "servers: atropos launch-vllm --status; another model: --model NAME"),
        **dict.fromkeys(("dataset", "datasets", "data"), "atropos env tasks ENV --output FILE; runs: atropos runs"),
        **dict.fromkeys(("preprocess", "tokenize"), "atropos sft-gen INPUT --format tokens --tokenizer MODEL"),
        **dict.fromkeys(("jobs", "ps", "queue", "top"), _STATUS),
        **dict.fromkeys(("kill", "cancel"), _STOP),
        **dict.fromkeys(("setup", "configure", "settings"), "atropos config show; the file is atropos.toml"),
        **dict.fromkeys(("quickstart", "demo", "example", "examples", "tutorial"), "atropos gen arithmetic --limit 20"),
        **dict.fromkeys(("docs", "man"), "atropos --help, or atropos COMMAND --help"),
        **dict.fromkeys(("completion", "completions"), "the option --install-completion (atropos --help)"),
        **dict.fromkeys(("whoami", "auth", "logout"), _NO_ACCOUNT),
        "kto": "atropos dpo-gen INPUT --kto --output FILE makes rows for a KTO trainer",
        "reward-modeling": "atropos dpo-gen INPUT --output FILE makes rows for a reward-model trainer",
        "chat": "atropos gen ENV --limit 1, then atropos view RUN",
        "resume": "the same command with --resume --output RUN",
        "status": _STATUS,
        "logs": "atropos slurm logs JOB, or atropos tmux logs JOB",
        "stop": _STOP,
        "login": _NO_ACCOUNT,
        "help": "atropos --help, or atropos COMMAND --help",
        "version": "atropos --version",
        **dict.fromkeys(("update", "upgrade"), "pip install --upgrade atropos-cli"),
        "uninstall": "pip uninstall atropos-cli",
    },
    "atropos env": {
        "install": _PIP,
        "init": _NEW,
        "new": _NEW,
        "push": "environments are packages: publish yours to a package index",
        "eval": "atropos eval ENV",
        "run": "atropos gen ENV",
    },
    "atropos plugins": {
        "install": "pip install NAME",
        "remove": "pip uninstall NAME",
        "uninstall": "pip uninstall NAME",
        "new": _NEW,
    },
    "atropos train": {
        **dict.fromkeys(("ppo", "rl", "rlvr", "online-dpo", "reinforce", "ppo-ray"), "atropos train grpo"),
        "list": "atropos trainer list",
        "vllm-serve": _SERVER,
        **dict.fromkeys(
            ("rm", "reward", "reward-modeling"),
            "atropos dpo-gen INPUT --output FILE makes rows for a reward-model trainer",
        ),
        **dict.fromkeys(("orpo", "cpo", "simpo", "ipo"), "atropos train dpo"),
        "rloo": "atropos train grpo --algorithm rloo",
        "dapo": "atropos train grpo --algorithm dapo",
        "gspo": "atropos train grpo --algorithm gspo",
        "lora": "a method with LoRA: atropos train sft --lora-r 16",
        "kto": "atropos dpo-gen INPUT --kto --output FILE makes rows for a KTO trainer",
    },
    "atropos slurm": dict.fromkeys(("sbatch", "srun"), "atropos slurm submit -- COMMAND"),
    "atropos config": {
        **dict.fromkeys(("set", "edit"), "write it into atropos.toml: atropos config show lists the names"),
        **dict.fromkeys(("path", "where"), "atropos config show lists the files that are read"),
    },
}
"""By the path of a command group: a name that means none of ours, and what to type instead."""
