"""The arguments of lerobot-train for a plan: a pure function. LeRobot's own parser judges them (`preflight`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from atropos_cli.sdk import ConfigError, UsageError
from atropos_cli.sdk.data import home
from atropos_cli.sdk.training import TrainPlan

from .config import LeRobotConfig
from .dataset import Found

N15, N17 = "nvidia/GR00T-N1.5-3B", "nvidia/GR00T-N1.7-3B"
SMOLVLA = "lerobot/smolvla_base"
SINCE_N17 = (0, 6)
"""From this LeRobot on GR00T is N1.7; before, N1.5."""
_PARTS: Mapping[str, str] = {
    "projector": "tune_projector", "diffusion": "tune_diffusion_model", "llm": "tune_llm", "visual": "tune_visual"
}  # fmt: skip
_LITE = ("projector", "diffusion")
_NAME = re.compile(r"[A-Za-z_][\w.]*\Z")
_OURS: Mapping[str, str] = {
    "steps": "--steps",
    "seed": "--seed",
    "batch_size": "--batch-size",
    "num_workers": "--num-workers",
    "save_freq": "--save-every",
    "output_dir": "--output",
    "resume": "--resume",
    "dataset.repo_id": "--dataset",
    "dataset.root": "--dataset",
    "policy.type": "--policy",
    "policy.path": "--model",
    "policy.base_model_path": "--model",
    "policy.device": "--device",
    "policy.embodiment_tag": "--embodiment",
    "policy.optimizer_lr": "--learning-rate",
    **{f"policy.{name}": "--tune" for name in _PARTS.values()},
    **dict.fromkeys(("config_path", "save_checkpoint", "log_freq", "policy.push_to_hub", "job_name"), ""),
    **dict.fromkeys(("wandb.enable", "save_checkpoint_to_hub", "job.target"), "--track"),
}
"""What the plan decides, with the option of ours that says it."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the arguments are made of. release: of LeRobot. steps, save_every: resolved."""

    plan: TrainPlan
    config: LeRobotConfig
    data: Found
    release: tuple[int, int]
    steps: int
    save_every: int

    @property
    def policy(self) -> str:
        return policy_of(self.plan, self.config)

    @property
    def batch_size(self) -> int:
        return batch_size_of(self.plan, self.config)


def policy_of(plan: TrainPlan, config: LeRobotConfig) -> str:
    """The policy's type. Raises UsageError for one that is not the method's."""
    if plan.method == "groot" and config.policy not in (None, "groot"):
        raise UsageError(
            f"train groot trains GR00T, not {config.policy}", hint=f"atropos train lerobot --policy {config.policy}"
        )
    return "groot" if plan.method == "groot" else config.policy or "act"


def batch_size_of(plan: TrainPlan, config: LeRobotConfig) -> int:
    return config.batch_size or (32 if policy_of(plan, config) == "groot" else 8)


def model_of(plan: TrainPlan, config: LeRobotConfig, release: tuple[int, int]) -> str:
    """The weights to start from; "" for none."""
    default = {"groot": N17 if release >= SINCE_N17 else N15, "smolvla": SMOLVLA}
    return plan.model or default.get(policy_of(plan, config), "")


def is_lerobot_checkpoint(model: str) -> bool:
    """A folder that LeRobot saved: its config.json names the type of policy, which NVIDIA's own do not."""
    try:
        return "type" in json.loads((Path(home(model)) / "config.json").read_bytes())
    except (OSError, ValueError, TypeError):
        return False


def arguments(order: Order, output: Path) -> list[str]:
    """For a training from the start. All have the form --NAME=VALUE: LeRobot reads some of them by that form alone."""
    config, plan = order.config, order.plan
    given: dict[str, object] = {"dataset.repo_id": order.data.repo}
    if order.data.root is not None:
        given["dataset.root"] = order.data.root
    given |= _policy(order)
    given |= {
        "policy.push_to_hub": False,
        "output_dir": output,
        "job_name": plan.run_name or plan.method,
        "seed": plan.seed,
        "batch_size": order.batch_size,
        "num_workers": config.num_workers,
        **_pace(order),
        "wandb.enable": False,
    }
    return [*_words(given), *(f"--{name}={value}" for name, value in own_arguments(config).items())]


def resumed(order: Order, output: Path, checkpoint: Path) -> list[str]:
    """For the rest of one: LeRobot takes everything else from the checkpoint."""
    given: dict[str, object] = {
        "config_path": checkpoint / "pretrained_model" / "train_config.json",
        "resume": True,
        "output_dir": output,
        **_device(order.config),
        **_pace(order),
    }
    return _words(given)


def own_arguments(config: LeRobotConfig) -> dict[str, str]:
    """Those of --set. Raises UsageError for one that is none, or that the plan decides."""
    found: dict[str, str] = {}
    for text in config.set:
        name, separator, value = text.removeprefix("--").partition("=")
        if not separator or not _NAME.match(name):
            raise UsageError(f"--set {text!r} is not NAME=VALUE", hint="--set policy.chunk_size=50")
        if name in _OURS:
            option = _OURS[name]
            raise UsageError(f"--set {name}: the run decides it", hint=f"use {option}" if option else "leave it out")
        if name in found:
            raise UsageError(f"--set {name} is given twice", hint="leave one out")
        found[name] = value
    return found


def _policy(order: Order) -> dict[str, object]:
    config, policy = order.config, order.policy
    model = model_of(order.plan, config, order.release)
    if policy != "groot" and config.tune:
        raise UsageError(f"--tune chooses parts of GR00T, and {policy} is trained whole", hint="leave out --tune")
    given: dict[str, object] = {}
    if model and (policy != "groot" or is_lerobot_checkpoint(model)):
        given["policy.path"] = home(model)
    else:
        given["policy.type"] = policy
    given |= _device(config)
    if policy == "groot":
        if "policy.type" in given:
            given["policy.base_model_path"] = home(model)
        parts = {part for name in config.tune or ("lite",) for part in (_LITE if name == "lite" else (name,))}
        given["policy.embodiment_tag"] = config.embodiment
        given |= {f"policy.{option}": part in parts for part, option in _PARTS.items()}
        if order.release >= SINCE_N17:
            # Its warm-up is a share of this number, and not of the steps that are made.
            given["policy.max_steps"] = order.steps
    if config.learning_rate is not None:
        given["policy.optimizer_lr"] = config.learning_rate
    return given


def _device(config: LeRobotConfig) -> dict[str, object]:
    return {} if config.device == "auto" else {"policy.device": config.device}


def _pace(order: Order) -> dict[str, object]:
    """No simulation is evaluated in; each step is logged, since a number that was not logged is lost in a crash."""
    evaluation = "env_eval_freq" if order.release >= SINCE_N17 else "eval_freq"
    return {"steps": order.steps, "save_freq": order.save_every, "log_freq": 1, evaluation: 0}


def _words(given: Mapping[str, object]) -> list[str]:
    words = []
    for name, value in given.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if "\0" in text:
            raise ConfigError(f"{name} has a character that no argument can have")
        words.append(f"--{name}={text}")
    return words
