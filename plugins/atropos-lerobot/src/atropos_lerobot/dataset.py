"""A LeRobot dataset on this disk, by its own files: found, of a format that is read, with what a policy needs.

Nothing of LeRobot is needed for it. Shapes and cameras are judged once more by the policy's own checks (`side`).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from atropos_cli.sdk import ConfigError, DataError, UsageError
from atropos_cli.sdk.data import home

INFO = Path("meta") / "info.json"
FORMAT = "v3.0"
CONVERTED = "v2.1"
STATE, ACTION = "observation.state", "action"
_IMAGES = ("image", "video")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+\Z")
_VERSION = re.compile(r"v?(\d+)\.(\d+)")
_SO_ARM = re.compile(r"so[-_]?10[01]", re.IGNORECASE)
JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
"""The motors of an SO-100 or SO-101 arm as LeRobot names them; a feature has NAME.pos."""


@dataclass(frozen=True, slots=True)
class Found:
    """A dataset. root: its folder, None for one that LeRobot has yet to fetch. info: its meta/info.json, or {}."""

    repo: str
    root: Path | None
    info: Mapping[str, Any]

    @property
    def frames(self) -> int | None:
        value = self.info.get("total_frames")
        return value if _is_count(value) else None

    @property
    def cameras(self) -> list[str]:
        """Names of the features that are pictures."""
        return [name for name, one in self._features.items() if one.get("dtype") in _IMAGES]

    @property
    def has_videos(self) -> bool:
        return any(one.get("dtype") == "video" for one in self._features.values())

    @property
    def _features(self) -> Mapping[str, Mapping[str, Any]]:
        features: Mapping[str, Mapping[str, Any]] = self.info["features"] if self.info else {}
        return features

    def mark(self) -> dict[str, Any]:
        """What a resumed run compares: another number of frames or other features are other data."""
        names = ("codebase_version", "total_episodes", "total_frames", "fps", "features")
        return {name: self.info.get(name) for name in names}


def find(name: str | None, method: str) -> Found:
    """The dataset that is meant. Raises UsageError, DataError."""
    if name is None:
        raise UsageError(f"train {method} needs a dataset", hint="--dataset DIR, or OWNER/NAME on the hub")
    folder = Path(home(name))
    if folder.is_dir():
        return Found(f"local/{_plain(folder.resolve().name)}", folder.resolve(), _read(folder))
    if name.startswith((".", "/", "~")) or not _REPO.match(name):
        raise DataError(f"there is no dataset folder {name}", hint="--dataset DIR, or OWNER/NAME on the hub")
    cached = lerobot_home() / name
    if (cached / INFO).is_file():
        return Found(name, None, _read(cached))
    if offline() and not (lerobot_home() / "hub").is_dir():
        raise DataError(
            f"dataset {name} is not in {lerobot_home()}, and nothing can be fetched offline",
            hint=f"with a network: hf download {name} --repo-type dataset --local-dir DIR; then --dataset DIR",
        )
    return Found(name, None, {})


def lerobot_home() -> Path:
    """Where LeRobot keeps datasets of the hub."""
    hub = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(os.environ.get("HF_LEROBOT_HOME") or Path(hub) / "lerobot").expanduser()


def offline() -> bool:
    """Is the hub out of bounds?"""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def check(found: Found, policy: str, python: str) -> list[str]:
    """Notes for the user. Raises DataError and ConfigError for a dataset that cannot be trained on.

    python: LeRobot's, for the command that converts a dataset.
    """
    if not found.info:
        return []
    _check_format(found, python)
    features = _features(found.info.get("features"), found)
    for name in (STATE, ACTION):
        if name not in features:
            raise DataError(
                f"dataset {found.repo} has no {name}", hint=f"its features: {', '.join(features) or 'none'}"
            )
        shape = features[name].get("shape")
        if not (isinstance(shape, list) and len(shape) == 1 and _is_count(shape[0]) and shape[0]):
            raise DataError(f"{name} of dataset {found.repo} has the shape {shape}, and one row of numbers is needed")
    if not _is_count(told := found.info.get("total_frames")):
        raise DataError(f"the total_frames of dataset {found.repo} are {told!r} in {INFO}, and a number is needed")
    if not told:
        raise DataError(f"dataset {found.repo} has no frames", hint="record episodes first: lerobot-record")
    _check_cameras(found, features, policy)
    _check_files(found)
    return _names(found, features)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def steps_of(frames: int, batch_size: int) -> int:
    """Once over the data."""
    return max(1, math.ceil(frames / batch_size))


def _read(folder: Path) -> dict[str, Any]:
    try:
        info = json.loads((folder / INFO).read_bytes())
    except FileNotFoundError:
        raise DataError(
            f"{folder} holds no {INFO}, so it is not a LeRobot dataset", hint="give the folder that has meta/ and data/"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{folder / INFO} cannot be read: {error}") from error
    if not isinstance(info, dict) or not info:
        raise DataError(f"{folder / INFO} is not a JSON object that describes a dataset")
    return info


def _check_format(found: Found, python: str) -> None:
    said = str(found.info.get("codebase_version", ""))
    match = _VERSION.match(said)
    if match is None:
        raise DataError(f"dataset {found.repo} names no format version in {INFO}: {said!r}")
    version = (int(match[1]), int(match[2]))
    if version[0] == 3:
        return
    if version > (3, 0):
        raise DataError(
            f"dataset {found.repo} has format {said}, and this plugin knows {FORMAT}", hint="a newer atropos-lerobot"
        )
    if said != CONVERTED:
        raise DataError(
            f"dataset {found.repo} has format {said}, and {FORMAT} is needed",
            hint=f"convert it to {CONVERTED} with LeRobot 0.3 first, then to {FORMAT}",
        )
    where = f" --root={found.root}" if found.root is not None else ""
    raise DataError(
        f"dataset {found.repo} has format {said}, and {FORMAT} is needed",
        hint=f"convert it: {python} -m MODULE --repo-id={found.repo}{where} --push-to-hub=false, where MODULE is "
        "lerobot.scripts.convert_dataset_v21_to_v30 (LeRobot 0.5 and newer) or "
        "lerobot.datasets.v30.convert_dataset_v21_to_v30",
    )


def _features(features: object, found: Found) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(features, dict) or not all(isinstance(one, dict) for one in features.values()):
        raise DataError(f"the features of dataset {found.repo} are not described in {INFO}")
    return features


def _check_files(found: Found) -> None:
    """A folder that was copied or downloaded in part."""
    if found.root is None:
        return
    for folder, what, pattern in (("data", "frames", "*.parquet"), (Path("meta", "episodes"), "episodes", "*.parquet")):
        if next((found.root / folder).rglob(pattern), None) is None:
            raise DataError(f"{found.root / folder} holds no {what}", hint="copy or download the whole dataset")
    for name in found.cameras:
        folder = found.root / "videos" / name
        if found.info["features"][name].get("dtype") == "video" and next(folder.rglob("*.mp4"), None) is None:
            raise DataError(f"{folder} holds no videos of that camera", hint="copy or download the whole dataset")


def _check_cameras(found: Found, features: Mapping[str, Mapping[str, Any]], policy: str) -> None:
    cameras = found.cameras
    if odd := [name for name in features if "/" in name or "\0" in name]:
        raise DataError(f"{odd[0]!r} of dataset {found.repo} is not the name of a feature")
    if not cameras and (policy in ("groot", "smolvla") or "observation.environment_state" not in features):
        raise ConfigError(
            f"dataset {found.repo} has no camera, and {policy} needs one",
            hint="a feature named observation.images.NAME of the type video or image",
        )
    if odd := [name for name in cameras if not name.startswith("observation.image")]:
        raise DataError(
            f"camera {odd[0]} of dataset {found.repo} is not seen by policies",
            hint="rename it to observation.images.NAME with lerobot-edit-dataset",
        )
    shapes = {str(features[name].get("shape")) for name in cameras}
    if policy == "diffusion" and len(shapes) > 1:
        raise ConfigError(
            f"the cameras of dataset {found.repo} have the shapes {', '.join(sorted(shapes))}, and diffusion needs one",
            hint="--policy act takes any; or record the cameras at one size",
        )


def _names(found: Found, features: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The joints of an SO-100 or SO-101, where the dataset says that it is of one."""
    robot = str(found.info.get("robot_type") or "")
    named = {part: _flat(features[part].get("names")) for part in (STATE, ACTION)}
    if not _SO_ARM.search(robot):
        return []
    notes = []
    for part, names in named.items():
        size = features[part]["shape"][0]
        arms, rest = divmod(int(size), len(JOINTS))
        if rest or not arms or (names and len(names) != size):
            raise DataError(
                f"{part} of dataset {found.repo} has {size} numbers and {len(names)} names, and a robot of type "
                f"{robot} has {len(JOINTS)} joints an arm",
                hint=f"the joints: {', '.join(JOINTS)}",
            )
        unknown = [name for name in names if re.sub(r"^(left|right)_", "", name).removesuffix(".pos") not in JOINTS]
        if unknown:
            notes.append(
                f"{part} calls a joint {unknown[0]}, and LeRobot's {robot} has {JOINTS[0]}.pos: the dataset trains, "
                "but was recorded with other names, maybe with another calibration, than a robot of today"
            )
    if named[STATE] and named[ACTION] and named[STATE] != named[ACTION]:
        notes.append(f"{STATE} and {ACTION} name their joints differently or in another order")
    return notes


def _flat(names: object) -> Sequence[str]:
    """Names are a list, or lists by group."""
    if isinstance(names, dict):
        return [str(name) for group in names.values() for name in (group if isinstance(group, list) else [group])]
    return [str(name) for name in names] if isinstance(names, list) else []


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name) or "dataset"
