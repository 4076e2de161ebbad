"""Datasets that cannot be trained on are refused by their own files, before LeRobot is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_lerobot import dataset

from atropos_cli.sdk import AtroposError

Made = Callable[..., Path]
WIDE = {"dtype": "image", "shape": [48, 64, 3], "names": ["height", "width", "channels"]}
SEVEN = {"dtype": "float32", "shape": [7], "names": None}


def refusal(folder: Path, policy: str = "act") -> str:
    """What is said of a dataset that is refused."""
    with pytest.raises(AtroposError) as raised:
        dataset.check(dataset.find(str(folder), "lerobot"), policy, "/lerobot/python")
    return f"{raised.value.message} | {raised.value.hint}"


def notes(folder: Path, policy: str = "act") -> list[str]:
    return dataset.check(dataset.find(str(folder), "lerobot"), policy, "/lerobot/python")


def test_a_whole_one_is_taken(made: Made) -> None:
    folder = made()
    found = dataset.find(str(folder), "lerobot")
    assert (found.repo, found.root, found.frames) == ("local/set", folder, 60)
    assert found.cameras == ["observation.images.front"]
    for policy in ("act", "diffusion", "smolvla", "groot"):
        assert notes(folder, policy) == []


@pytest.mark.parametrize(
    ("changes", "policy", "told"),
    [
        ({"codebase_version": "v2.1"}, "act", "convert it: /lerobot/python -m MODULE --repo-id=local/set --root="),
        ({"codebase_version": "v2.0"}, "act", "convert it to v2.1 with LeRobot 0.3 first"),
        ({"codebase_version": "v1.6"}, "act", "convert it to v2.1"),
        ({"codebase_version": "v4.0"}, "act", "this plugin knows v3.0"),
        ({"codebase_version": None}, "act", "names no format version"),
        ({"total_frames": 0}, "act", "has no frames"),
        ({"total_frames": "many"}, "act", "are 'many' in"),
        ({"features": {"action": None}}, "act", "has no action"),
        ({"features": {"observation.state": {"dtype": "float32", "shape": [6, 2]}}}, "act", "the shape [6, 2]"),
        ({"features": {"observation.images.front": None}}, "groot", "has no camera, and groot needs one"),
        ({"features": {"observation.images.front": None}}, "act", "has no camera, and act needs one"),
        ({"features": {"front": WIDE}}, "act", "camera front of dataset local/set is not seen by policies"),
        ({"features": {"observation.images.top": WIDE}}, "diffusion", "diffusion needs one"),
        ({"features": {"action": SEVEN}}, "act", "has 7 numbers and 0 names"),
        ({"features": {"observation.images.top": {**WIDE, "dtype": "video"}}}, "act", "holds no videos of that camera"),
    ],
)
def test_what_is_refused(made: Made, changes: dict[str, Any], policy: str, told: str) -> None:
    assert told in refusal(made(**changes), policy)


def test_features_that_are_none(made: Made) -> None:
    folder = made()
    (folder / "meta" / "info.json").write_text('{"codebase_version": "v3.0", "features": [1]}')
    assert "are not described" in refusal(folder)
    (folder / "meta" / "info.json").write_text("[]")
    assert "is not a JSON object" in refusal(folder)
    (folder / "meta" / "info.json").write_text("{")
    assert "cannot be read" in refusal(folder)
    (folder / "meta" / "info.json").unlink()
    assert "it is not a LeRobot dataset" in refusal(folder)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"total_frames": "60"}, "the total_frames of dataset local/set are '60'"),
        ({"total_frames": -5}, "are -5"),
        ({"total_frames": 60.5}, "are 60.5"),
        ({"total_frames": True}, "are True"),
        ({"total_frames": None}, "are None"),
        ({"features": {"action": {"dtype": "float32", "shape": ["x"], "names": None}}}, "has the shape ['x']"),
        ({"features": {"action": {"dtype": "float32", "shape": [None], "names": None}}}, "has the shape [None]"),
        ({"features": {"action": {"dtype": "float32", "shape": [0], "names": []}}}, "has the shape [0]"),
        (
            {"features": {"observation.images/../../..": {"dtype": "video", "shape": [9, 9, 3]}}},
            "the name of a feature",
        ),
        ({"features": {"/": {"dtype": "video", "shape": [9, 9, 3]}}}, "'/' of dataset local/set is not the name"),
    ],
)
def test_counts_shapes_and_names_that_cannot_be(made: Made, changes: dict[str, Any], told: str) -> None:
    assert told in refusal(made(**changes))


@pytest.mark.parametrize("text", ["{}", "[" * 100_000, "\xff", "null"])
def test_a_description_that_describes_nothing(made: Made, text: str) -> None:
    folder = made()
    (folder / "meta" / "info.json").write_text(text, encoding="latin-1")
    assert "info.json" in refusal(folder)


def test_a_folder_that_was_copied_in_part(made: Made) -> None:
    folder = made()
    next(folder.rglob("data/*/*.parquet")).unlink()
    assert "data holds no frames | copy or download the whole dataset" in refusal(folder)


def test_joints_of_another_calibration_are_noted(made: Made) -> None:
    old = {"dtype": "float32", "shape": [6], "names": [f"main_{name}" for name in dataset.JOINTS]}
    calibration, order = notes(made(features={"action": old}))
    assert "action calls a joint main_shoulder_pan" in calibration
    assert "name their joints differently" in order
    assert notes(made(robot_type="aloha", features={"action": SEVEN})) == []


def test_two_arms(made: Made) -> None:
    names = [f"{side}_{name}.pos" for side in ("left", "right") for name in dataset.JOINTS]
    both = {"dtype": "float32", "shape": [12], "names": names}
    assert notes(made(robot_type="bi_so101_follower", features={"action": both, "observation.state": both})) == []


def test_names_in_groups(made: Made) -> None:
    grouped = {"dtype": "float32", "shape": [6], "names": {"motors": [f"{name}.pos" for name in dataset.JOINTS]}}
    assert notes(made(features={"action": grouped})) == []


def test_one_of_the_hub(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path / "home"))
    found = dataset.find("me/so101", "groot")
    assert (found.repo, found.root, found.frames) == ("me/so101", None, None)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(AtroposError) as raised:
        dataset.find("me/so101", "groot")
    assert "hf download me/so101 --repo-type dataset" in str(raised.value.hint)
    (tmp_path / "home" / "me").mkdir(parents=True)
    made().rename(tmp_path / "home" / "me" / "so101")
    assert dataset.find("me/so101", "groot").frames == 60


@pytest.mark.parametrize("name", ["./none", "/none", "none", "a/b/c", "../x/y", "a b/c", "--x/y"])
def test_neither_a_folder_nor_a_name(name: str) -> None:
    with pytest.raises(AtroposError, match="there is no dataset folder"):
        dataset.find(name, "lerobot")


def test_steps_of_one_pass() -> None:
    assert [dataset.steps_of(frames, 8) for frames in (1, 8, 9, 60)] == [1, 1, 2, 8]
