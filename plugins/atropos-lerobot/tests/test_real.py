"""LeRobot itself: its parser, its classes, its training loop, killed and resumed.

ATROPOS_TEST_LEROBOT names a Python with LeRobot 0.4.4 to 0.6; each test imports it several times, 20 CPU seconds each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("ATROPOS_TEST_LEROBOT", "")
PATIENCE = 1800
pytestmark = pytest.mark.skipif(not PYTHON, reason="ATROPOS_TEST_LEROBOT is not set")
SMALL = (
    "--set", "policy.pretrained_backbone_weights=null", "--set", "policy.dim_model=64", "--set", "policy.n_heads=2",
    "--set", "policy.dim_feedforward=64", "--batch-size", "2", "--num-workers", "0", "--device", "cpu",
)  # fmt: skip
MAKE = """
import sys
import numpy
from lerobot.datasets.lerobot_dataset import LeRobotDataset
joints = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
arm = {"dtype": "float32", "shape": (6,), "names": [f"{name}.pos" for name in joints]}
picture = {"dtype": "image", "shape": (96, 96, 3), "names": ["height", "width", "channels"]}
features = {"observation.state": arm, "action": arm, "observation.images.front": picture}
made = LeRobotDataset.create(
    "local/set", fps=30, features=features, root=sys.argv[1], robot_type="so101_follower", use_videos=False
)
draw = numpy.random.default_rng(0)
for _ in range(2):
    for _ in range(30):
        made.add_frame({
            "observation.state": draw.random(6, dtype=numpy.float32),
            "action": draw.random(6, dtype=numpy.float32),
            "observation.images.front": draw.integers(0, 255, (96, 96, 3), dtype=numpy.uint8),
            "task": "pick",
        })
    made.save_episode()
made.finalize()
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two episodes of 30 frames of an SO-101 with one camera, written by LeRobot."""
    folder = tmp_path_factory.mktemp("made") / "set"
    subprocess.run([PYTHON, "-c", MAKE, str(folder)], check=True, timeout=PATIENCE)
    return folder


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No hub, and threads that do not wait for each other."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def start(*words: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "atropos_cli", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.05)


def steps_in(run: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_act_trains_is_killed_and_resumed(dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = (
        "train", "lerobot", "--policy", "act", "--dataset", dataset, "--lerobot", PYTHON, *SMALL, "--steps", "4",
        "--save-every", "1", "-o", run, "--track", "tensorboard",
    )  # fmt: skip
    first = start(*words)
    wait_for(run / "checkpoints" / "step-1", first)
    first.kill()
    first.communicate()
    until = time.monotonic() + 60
    while str(run) in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout:
        assert time.monotonic() < until, "LeRobot's process outlived the one that started it"
        time.sleep(0.2)
    second = start(*words, "--resume")
    _, said = second.communicate(timeout=2 * PATIENCE)
    assert second.returncode == 0, said
    assert steps_in(run) == [1, 2, 3, 4]
    assert (run / "model" / "model.safetensors").stat().st_size > 1_000_000
    assert json.loads((run / "model" / "config.json").read_text())["type"] == "act"
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-3", "step-4"]
    assert json.loads((run / "train.json").read_text())["attempt"] == 2
    assert "loss" in (run / "curves.html").read_text()


def test_groot_is_accepted_up_to_the_gpu(dataset: Path, tmp_path: Path, cli: Callable[..., Any]) -> None:
    from atropos_lerobot import command, place, preflight
    from atropos_lerobot import dataset as files
    from atropos_lerobot.config import LeRobotConfig

    from atropos_cli.sdk.runs import ComponentRef
    from atropos_cli.sdk.training import TrainPlan

    trainer = ComponentRef(name="lerobot", dist="atropos-lerobot", version="0")
    plan = TrainPlan(atropos_version="0", method="groot", learns="own", trainer=trainer, model="", seed=7)
    release = place.release_of(".".join(place.installed_release(PYTHON).split(".")[:2]))
    found = files.find(str(dataset), "groot")
    config = LeRobotConfig(dataset=str(dataset), tune=("lite", "visual"), device="cuda")
    order = command.Order(plan, config, found, release, 100, 10)
    said = place.ask(PYTHON, command.arguments(order, tmp_path / "none"))
    assert "refused" not in said
    assert said["policy"]["type"] == "groot"
    assert said["dataset"]["frames"] == 60
    if not said["devices"]:
        with pytest.raises(Exception, match="sees no CUDA GPU"):
            preflight.check_device(preflight.Ready(PYTHON, order, said, ()))


def test_what_its_parser_refuses(dataset: Path, cli: Callable[..., Any]) -> None:
    done = cli("train", "lerobot", "--dataset", dataset, "--lerobot", PYTHON, *SMALL, "--set", "policy.no_such=9")
    assert (done.code, "LeRobot" in done.stderr, "no_such" in done.stderr) == (3, True, True), done.stderr
