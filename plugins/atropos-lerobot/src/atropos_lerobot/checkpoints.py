"""Checkpoints of LeRobot in the run folder: checkpoints/step-N with pretrained_model/ and training_state/.

A folder of that name is whole: `side` renames it when all of it is on disk.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from atropos_cli.sdk import DataError
from atropos_cli.sdk.records import checkpoints
from atropos_cli.sdk.training import TrainerError

POLICY = "pretrained_model"
_GONE = ".gone-"


def newest(run: Path) -> tuple[int, Path]:
    """(step, folder) of the newest. Raises DataError where there is none, or where it lacks something."""
    names = checkpoints(run)
    if not names:
        raise DataError(
            f"there is no complete checkpoint below {run / 'checkpoints'}: nothing to resume from",
            hint="start again with --overwrite, or resume a run that has saved one",
        )
    folder = run / "checkpoints" / names[-1]
    step = int(names[-1].removeprefix("step-"))
    needed = (f"{POLICY}/train_config.json", "training_state/training_step.json")
    lacking = [name for name in needed if not (folder / name).is_file()]
    if lacking or _step_in(folder) != step:
        what = f"it has no {lacking[0]}" if lacking else f"its training_step.json is not of step {step}"
        raise DataError(f"checkpoint {folder} is damaged: {what}", hint=f"remove {folder}, then --resume again")
    return step, folder


def prune(run: Path, keep: int) -> None:
    """Remove all but the newest, while the next one may be being written."""
    root = run / "checkpoints"
    for name in checkpoints(run)[:-keep]:
        gone = root / f"{_GONE}{name}"
        with contextlib.suppress(OSError):
            (root / name).rename(gone)
    _remove_gone(root)


def clean(run: Path) -> None:
    """Remove what an interruption left. Not while LeRobot's process lives: it writes there."""
    _remove_gone(run / "checkpoints")
    shutil.rmtree(run / "lerobot", ignore_errors=True)


def _remove_gone(root: Path) -> None:
    for folder in root.glob(f"{_GONE}*"):
        shutil.rmtree(folder, ignore_errors=True)


def publish(run: Path, checkpoint: Path) -> Path:
    """The policy of a checkpoint as RUN/model: links to its files, which are not stored twice."""
    model, writing = run / "model", run / ".writing-model"
    shutil.rmtree(writing, ignore_errors=True)
    try:
        shutil.copytree(checkpoint / POLICY, writing, copy_function=_link)
        shutil.rmtree(model, ignore_errors=True)
        writing.rename(model)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(writing, ignore_errors=True)
        raise TrainerError(f"the policy cannot be written to {model}: {error}", hint="then --resume again") from error
    return model


def _link(source: str, target: str) -> None:
    try:
        Path(target).hardlink_to(source)
    except OSError:  # a disk without links
        shutil.copy2(source, target)


def _step_in(folder: Path) -> int | None:
    try:
        step = json.loads((folder / "training_state" / "training_step.json").read_bytes())["step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None
