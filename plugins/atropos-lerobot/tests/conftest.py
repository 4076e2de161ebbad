"""The command line in this process, and a made dataset folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Result, command_line

JOINTS = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]


@pytest.fixture(autouse=True)
def clean(atropos_clean: Path) -> Path:
    """An empty home and working folder for each test."""
    return atropos_clean


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """The command line in this process."""
    yield from command_line(capfd)


def made_info(**changes: Any) -> dict[str, Any]:
    """meta/info.json of two episodes of an SO-101 with one camera; changes replace keys, and features by name."""
    arm = {"dtype": "float32", "shape": [6], "names": [f"{name}.pos" for name in JOINTS]}
    features = {
        "observation.state": arm,
        "action": arm,
        "observation.images.front": {"dtype": "image", "shape": [96, 96, 3], "names": ["height", "width", "channels"]},
        **changes.pop("features", {}),
    }
    return {
        "codebase_version": "v3.0",
        "robot_type": "so101_follower",
        "total_episodes": 2,
        "total_frames": 60,
        "fps": 30,
        "features": {name: one for name, one in features.items() if one is not None},
        **changes,
    }


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """made(codebase_version="v2.1") -> a dataset's folder, its files empty but for meta/info.json."""

    def make(**changes: Any) -> Path:
        folder = tmp_path / "set"
        for file in ("data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).touch()
        (folder / "meta" / "info.json").write_text(json.dumps(made_info(**changes)))
        return folder

    return make
