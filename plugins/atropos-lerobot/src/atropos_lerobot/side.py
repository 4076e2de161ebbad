"""On LeRobot's side: its own parser, its own classes, its own training loop. Run by path under LeRobot's Python.

    python side.py check '{"arguments": [...]}'     one JSON object: what LeRobot makes of the arguments, or its refusal
    python side.py train '{"arguments": [...], "checkpoints": DIR}'    a JSON object a line: metrics, checkpoints

It imports nothing of atropos. Standard output has nothing but these objects; everything else goes to standard error.
The training loop is LeRobot's. Replaced in it are: the meter that it logs from, which also reports; the link to the
newest checkpoint, in whose place the finished checkpoint moves to DIR/step-N; and the count of updates, to stop after
one. SIGTERM ends after the update at hand, with a checkpoint.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

_REPLACED = ("MetricsTracker", "update_last_checkpoint", "update_policy")
_MOST = 6


def main(words: list[str]) -> int:
    """Answer on the original standard output."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    mode, settings = words[0], json.loads(words[1])

    def say(what: dict[str, Any]) -> None:
        try:
            print(json.dumps(what), file=out, flush=True)
        except BrokenPipeError:  # whoever started this is gone
            os._exit(1)

    if mode == "check":
        say(check(settings["arguments"]))
        return 0
    return Training(settings["arguments"], Path(settings["checkpoints"]), say).run()


# What LeRobot makes of the arguments ----------------------------------------------------------------------------------


def check(arguments: list[str]) -> dict[str, Any]:
    """{"versions", "devices", ...}, with "refused" where LeRobot's parser or classes refuse the arguments."""
    try:
        found = versions()
    except Exception as error:  # noqa: BLE001 - any package may be broken in its own way
        return {"broken": reasons(error)}
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            cfg = parsed(arguments)
    except SystemExit:
        return {**found, "refused": complaint(said.getvalue()), "at": "arguments"}
    except Exception as error:  # noqa: BLE001 - it becomes the message
        return {**found, "refused": reasons(error), "at": "arguments"}
    found["policy"] = policy_of(cfg)
    try:
        found["dataset"] = dataset_of(cfg)
    except Exception as error:  # noqa: BLE001 - it becomes the message
        return {**found, "refused": reasons(error), "at": "dataset"}
    return found


def complaint(said: str) -> list[str]:
    """The error at the end of what a parser printed, behind its usage."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    begin = max((place for place, line in enumerate(lines) if "error:" in line), default=max(0, len(lines) - 1))
    return [" ".join(lines[begin:]).partition("error:")[2].strip() or " ".join(lines[begin:])]


def versions() -> dict[str, Any]:
    """The installed versions, and which devices torch sees."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    import lerobot.scripts.lerobot_train as program
    import torch

    devices = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(number)
        devices.append({"name": torch.cuda.get_device_name(number), "free": free, "total": total})
    try:
        flash = version("flash-attn")
    except PackageNotFoundError:
        flash = None
    return {
        "lerobot": version("lerobot"),
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": torch.__version__,
        "devices": devices,
        "flash_attn": flash,
        "decoders": [name for name in ("torchcodec", "av") if find_spec(name) is not None],
        "lacks": [name for name in _REPLACED if not hasattr(program, name)],
    }


def parsed(arguments: list[str]) -> Any:
    """The validated TrainPipelineConfig, made as `lerobot-train` makes it."""
    from lerobot.configs import parser
    from lerobot.configs.train import TrainPipelineConfig
    from lerobot.utils.import_utils import register_third_party_plugins

    def take(cfg: Any) -> Any:
        cfg.validate()
        return cfg

    take.__annotations__ = {"cfg": TrainPipelineConfig}
    register_third_party_plugins()
    sys.argv = ["lerobot-train", *arguments]
    return parser.wrap()(take)()


def policy_of(cfg: Any) -> dict[str, Any]:
    """What the checks of the caller look at."""
    policy = cfg.policy
    weights = getattr(policy, "pretrained_backbone_weights", None)
    base = getattr(policy, "base_model_path", None)
    return {
        "type": policy.type,
        "device": policy.device,
        "backbone": weights,
        "backbone_there": weights is None or has_backbone(getattr(policy, "vision_backbone", "")),
        "base": base,
        "base_there": base is None or is_there(base),
    }


def has_backbone(name: str) -> bool:
    """Is a file of the weights of torchvision's model in torch's cache?"""
    import torch

    return any(Path(torch.hub.get_dir(), "checkpoints").glob(f"{name}-*.pth"))


def is_there(name: str) -> bool:
    """Is a model a folder, or in the hub's cache?"""
    from huggingface_hub import try_to_load_from_cache

    return Path(name).is_dir() or isinstance(try_to_load_from_cache(name, "config.json"), str)


def dataset_of(cfg: Any) -> dict[str, Any]:
    """Its size; its features are given to the policy's own checks, as `make_policy` does before it builds one."""
    meta = metadata(cfg)
    from lerobot.configs.types import FeatureType
    from lerobot.policies.utils import validate_visual_features_consistency

    features = policy_features(meta.features)
    policy = cfg.policy
    policy.output_features = {name: one for name, one in features.items() if one.type is FeatureType.ACTION}
    if not policy.input_features:
        policy.input_features = {name: one for name, one in features.items() if name not in policy.output_features}
    policy.validate_features()
    if not cfg.rename_map:
        validate_visual_features_consistency(policy, features)
    chosen = set(cfg.dataset.episodes) if cfg.dataset.episodes is not None else None
    lengths = [
        int(length)
        for number, length in zip(meta.episodes["episode_index"], meta.episodes["length"], strict=True)
        if chosen is None or int(number) in chosen
    ]
    dropped = int(getattr(policy, "drop_n_last_frames", 0) or 0)
    return {
        "root": str(meta.root),
        "episodes": len(lengths),
        "frames": sum(lengths),
        "used": sum(max(0, length - dropped) for length in lengths),
        "dropped": dropped,
        "longest": max(lengths, default=0),
    }


def metadata(cfg: Any) -> Any:
    """The dataset's metadata; of a dataset of the hub these files alone are fetched."""
    made = moved("LeRobotDatasetMetadata", "lerobot.datasets", "lerobot.datasets.lerobot_dataset")
    return made(cfg.dataset.repo_id, root=cfg.dataset.root, revision=cfg.dataset.revision)


def policy_features(features: Any) -> Any:
    """Features of the dataset as those of a policy."""
    places = ("lerobot.utils.feature_utils", "lerobot.datasets.feature_utils", "lerobot.datasets.utils")
    return moved("dataset_to_policy_features", *places)(features)


def moved(name: str, *modules: str) -> Any:
    """A name with another place in each release."""
    for module in modules:
        with contextlib.suppress(ImportError):
            found = getattr(importlib.import_module(module), name, None)
            if found is not None:
                return found
    raise ImportError(f"LeRobot has no {name} in {', '.join(modules)}")


def reasons(error: BaseException) -> list[str]:
    """The messages of an exception and of what caused it, the cause first: draccus has it swallowed in the last."""
    found: list[str] = []
    at: BaseException | None = error
    while at is not None and len(found) < _MOST:
        text = " ".join(str(at).split()) or type(at).__name__
        if text not in found:
            found.append(text)
        at = at.__cause__ or at.__context__
    return found[::-1]


# Training -------------------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """The checkpoint of an interrupted training is written."""


class Training:
    """LeRobot's `train`, reporting."""

    def __init__(self, arguments: list[str], checkpoints: Path, say: Any) -> None:
        self.arguments = arguments
        self.checkpoints = checkpoints
        self.say = say
        self.cfg: Any = None
        self.updating = False
        self.stopping = False
        self.extra: dict[str, float] = {}

    def run(self) -> int:
        """0 when all steps are done or it was stopped after one; an exception of LeRobot is printed and named."""
        signal.signal(signal.SIGTERM, self.on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            import lerobot.scripts.lerobot_train as program

            self.replace(program)
            cfg = parsed(self.arguments)
            self.cfg = cfg
            program.train.__wrapped__(cfg)
        except Stopped:
            return 0
        except Exception as error:  # noqa: BLE001 - it is reported with its trace in the log
            import traceback

            traceback.print_exc()
            self.say({"error": type(error).__name__, "message": reasons(error)})
            return 1
        return 0

    def replace(self, program: Any) -> None:
        """Put the three replacements in."""
        training, say = self, self.say
        lacking = [name for name in _REPLACED if not hasattr(program, name)]
        if lacking:
            raise RuntimeError(f"lerobot_train has no {', '.join(lacking)}")

        class Tracker(program.MetricsTracker):  # type: ignore[misc]
            """Its averages are reset after each line of the log: this is where they are reported."""

            def reset_averages(self) -> None:
                say({"step": self.steps, "metrics": {**training.extra, **self.to_dict()}})
                super().reset_averages()

        update = program.update_policy

        def update_policy(*args: Any, **given: Any) -> Any:
            training.updating = True
            tracker, output = update(*args, **given)
            values = {name: number(value) for name, value in (output or {}).items()}
            training.extra = {name: value for name, value in values.items() if value is not None}
            if training.stopping:
                training.cfg.save_freq = 1
            return tracker, output

        program.MetricsTracker = Tracker
        program.update_policy = update_policy
        program.update_last_checkpoint = self.keep

    def keep(self, folder: Path) -> None:
        """A checkpoint is written: force it to disk, and move it to its place by one rename."""
        step = int(json.loads((folder / "training_state" / "training_step.json").read_text())["step"])
        force_to_disk(folder)
        place = self.checkpoints / f"step-{step}"
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        if place.exists():
            import shutil

            shutil.rmtree(place)
        folder.rename(place)
        force(self.checkpoints)
        self.say({"checkpoint": step})
        if self.stopping and step < self.cfg.steps:
            raise Stopped

    def on_signal(self, number: int, frame: Any) -> None:
        """SIGTERM: before the first update there is nothing to save."""
        self.stopping = True
        if not self.updating:
            os._exit(0)
        self.cfg.save_freq = 1


def number(value: Any) -> float | None:
    """A number of a policy's output, or None for anything else."""
    if hasattr(value, "numel") and value.numel() == 1:
        value = value.item()
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def force_to_disk(folder: Path) -> None:
    """All files and folders below."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_file() or path.is_dir():
            force(path)


def force(path: Path) -> None:
    """One file or folder."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
