"""Everything that can be known before the first second on a GPU, in one answer.

First the dataset's own files, then LeRobot's own parser, its dataset class and the policy's own checks of features,
which run in its Python and load no weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError, DataError, JsonDict
from atropos_cli.sdk.training import TrainPlan

from . import command, dataset, place
from .config import LeRobotConfig

_GB = 1024**3
_NEEDED_GB: Mapping[str, int] = {"lite": 24, "visual": 40, "llm": 80}
"""Memory of a GPU for GR00T by the tuned part. The first is from reports of users, the others are estimates: weights
and AdamW's state of the tuned parts, in 32 bits."""
_SAVES = 10


@dataclass(frozen=True, slots=True)
class Ready:
    """A training that LeRobot accepts. notes: worth telling the user once."""

    python: str
    order: command.Order
    said: Mapping[str, Any]
    notes: Sequence[str]

    def shown(self) -> JsonDict:
        """For --dry-run."""
        devices = [f"{one['name']}, {one['total'] / _GB:.0f} GB" for one in self.said["devices"]]
        data = self.said["dataset"]
        return {
            "lerobot": self.said["lerobot"],
            "python": self.python,
            "torch": self.said["torch"],
            "gpus": devices or "none on this machine",
            "device": self.said["policy"]["device"],
            "dataset": {name: data[name] for name in ("root", "episodes", "frames", "used")},
            "cameras": self.order.data.cameras,
            "batch_size": self.order.batch_size,
            "steps": self.order.steps,
            "save_every": self.order.save_every,
            "notes": list(self.notes),
            "command": ["lerobot-train", *command.arguments(self.order, Path("RUN", "lerobot"))],
        }


def ready(plan: TrainPlan, config: LeRobotConfig) -> Ready:
    """Raises AtroposError with what to change."""
    policy = command.policy_of(plan, config)
    found = dataset.find(config.dataset, plan.method)
    python = place.python_of(config.lerobot)
    notes = dataset.check(found, policy, python)
    release = place.installed_release(python)
    number = place.release_of(re.sub(r"^(\d+\.\d+).*", r"\1", release))
    _check_generation(plan, policy, release, number)
    order = _order(plan, config, found, number, found.frames or 1)
    said = place.ask(python, command.arguments(order, Path("RUN", "lerobot")))
    if said["lacks"]:
        raise ConfigError(
            f"LeRobot {release} has no {', '.join(said['lacks'])} in its training loop, which this plugin looks for",
            hint=f"atropos env add lerobot, which installs {place.RELEASE}",
        )
    if refused := said.get("refused"):
        _refuse(refused, said, config)
    data = said["dataset"]
    if not data["used"]:
        raise DataError(
            f"no episode of dataset {found.repo} is longer than {data['dropped']} frames, and {policy} leaves out as "
            "many at the end of each",
            hint="a shorter chunk: --set policy.chunk_size=N",
        )
    order = _order(plan, config, found, number, data["used"])
    _check_installed(order, said, found)
    return Ready(python, order, said, [*notes, *_notes(order, said)])


def check_device(ready: Ready) -> None:
    """The GPU, where the training starts. A plan is made elsewhere, often: so this is not part of `ready`."""
    device, devices = ready.said["policy"]["device"], ready.said["devices"]
    if ready.order.config.device == "cuda" and not devices:
        raise ConfigError("LeRobot's torch sees no CUDA GPU here", hint="--device cpu, or run it where there is one")
    if ready.order.policy != "groot":
        return
    if device != "cuda":
        raise ConfigError(
            f"GR00T trains on a CUDA GPU, and LeRobot's torch sees none here (device: {device})",
            hint="run it where there is one: atropos slurm submit train groot ...",
        )
    tuned = ready.order.config.tune
    part = next((name for name in ("llm", "visual") if name in tuned), "lite")
    free, needed = max((one["free"] for one in devices), default=0) / _GB, _NEEDED_GB[part]
    if free < needed * 0.9:  # a card of 24 GB has less
        raise ConfigError(
            f"GR00T with {part} tuned takes about {needed} GB of GPU memory, and {free:.1f} GB are free",
            hint="--tune projector, a smaller --batch-size, or a larger GPU",
        )


def _order(
    plan: TrainPlan, config: LeRobotConfig, found: dataset.Found, release: tuple[int, int], frames: int
) -> command.Order:
    steps = plan.steps or dataset.steps_of(frames, command.batch_size_of(plan, config))
    return command.Order(plan, config, found, release, steps, plan.save_every or max(1, steps // _SAVES))


def _check_generation(plan: TrainPlan, policy: str, release: str, number: tuple[int, int]) -> None:
    """LeRobot has one generation of GR00T at a time; its parser hides which."""
    if policy != "groot":
        return
    said = re.search(r"n1[._]?([57])(?![0-9])", plan.model.rsplit("/", 1)[-1], re.IGNORECASE)
    if said is None:
        return
    if said[1] == "5" and number >= command.SINCE_N17:
        raise ConfigError(
            f"{plan.model} is GR00T N1.5, and LeRobot {release} has N1.7 alone",
            hint=f"atropos env add lerobot {place.N15_RELEASE}, then --lerobot {place.N15_RELEASE}; "
            f"or --model {command.N17}",
        )
    if said[1] == "7" and number < command.SINCE_N17:
        raise ConfigError(
            f"{plan.model} is GR00T N1.7, and LeRobot {release} has N1.5 alone",
            hint=f"atropos env add lerobot, without --lerobot; or --model {command.N15}",
        )


def _refuse(refused: Sequence[str], said: Mapping[str, Any], config: LeRobotConfig) -> None:
    text = "; ".join(refused[:2])
    hint = "atropos train METHOD --dry-run shows the command"
    unknown = re.search(r"--([\w.]+)", text) if "unrecognized" in text else None
    if unknown and unknown[1] in command.own_arguments(config):
        hint = f"LeRobot {said['lerobot']} has no --{unknown[1]}: change or leave out that --set"
    if said["at"] == "dataset":
        raise DataError(f"LeRobot {said['lerobot']} refuses the dataset: {text}", hint=hint)
    raise ConfigError(f"LeRobot {said['lerobot']} refuses its arguments: {text}", hint=hint)


def _check_installed(order: command.Order, said: Mapping[str, Any], found: dataset.Found) -> None:
    policy = said["policy"]
    if order.policy == "groot" and order.release < command.SINCE_N17 and said["flash_attn"] is None:
        raise ConfigError(
            f"GR00T N1.5 of LeRobot {said['lerobot']} needs flash-attn, which is not installed beside it",
            hint="where there is a CUDA compiler, in LeRobot's Python: pip install --no-build-isolation flash-attn",
        )
    if found.has_videos and not said["decoders"]:
        raise ConfigError("LeRobot's Python has no decoder of videos", hint="install torchcodec or av there")
    if dataset.offline() and not policy["backbone_there"]:
        raise ConfigError(
            f"the weights {policy['backbone']} are not in torch's cache, and nothing can be fetched offline",
            hint="--set policy.pretrained_backbone_weights=null trains without them; or fetch them first",
        )
    if dataset.offline() and not policy["base_there"]:
        raise ConfigError(
            f"{policy['base']} is not in the hub's cache, and nothing can be fetched offline",
            hint=f"where there is a network: atropos prefetch --model {policy['base']}",
        )


def _notes(order: command.Order, said: Mapping[str, Any]) -> list[str]:
    notes = []
    if order.plan.steps is None:
        notes.append(f"{order.steps} steps are once over {said['dataset']['used']} frames; --steps N for more")
    if said["policy"]["device"] == "cpu":
        notes.append("it trains on the CPU, which is slow")
    return notes
