"""Interrupted and killed runs go on as if nothing had happened; failed saves cost nothing."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from trl_support import make_plan, make_trainer, metrics, run

from atropos_cli.sdk import DataError
from atropos_cli.sdk.training import TrainerError, TrainPlan

pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("atropos_local")

CONFIG = {"algorithm": "grpo", "learning_rate": 3e-3, "per_device_train_batch_size": 8}
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from trl_support import run
from atropos_cli.sdk.training import TrainPlan
result = run(TrainPlan.model_validate_json(sys.argv[2]), Path(sys.argv[3]), resume=sys.argv[4] == "resume")
print(result.stopped)
"""


def started(plan: TrainPlan, folder: Path, how: str = "") -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), plan.model_dump_json(), str(folder), how]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def wait_for_step(folder: Path, step: int) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        try:
            if len(metrics(folder)) >= step:
                return
        except (OSError, json.JSONDecodeError):
            pass
        time.sleep(0.01)
    raise AssertionError(f"step {step} was not reached")


def losses(folder: Path) -> dict[int, tuple[float, float, float]]:
    """(loss, grad_norm, reward) by step; a step made twice counts as it was made last."""
    return {row["step"]: (row["loss"], row["grad_norm"], row.get("reward", 0.0)) for row in metrics(folder)}


def live_plan(small: Path, env_file: str, **config: Any) -> TrainPlan:
    return make_plan(
        small,
        environment=f"{env_file}:Letters",
        config={**CONFIG, **config},
        steps=10,
        save_every=2,
        keep_checkpoints=3,
    )


@pytest.fixture(scope="module")
def unbroken(small: Path, env_file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(live_plan(small, env_file), folder)
    return folder


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_run_goes_on_with_the_same_losses(
    small: Path, env_file: str, tmp_path: Path, unbroken: Path, number: signal.Signals
) -> None:
    """F10, at a random step: data order, optimiser, scheduler and random state are restored."""
    plan, folder = live_plan(small, env_file), tmp_path / "run"
    process = started(plan, folder)
    wait_for_step(folder, random.Random().randint(3, 7))
    process.send_signal(number)
    out, _ = process.communicate(timeout=300)
    if number == signal.SIGTERM and process.returncode == 0:
        assert "interrupted" in out or "None" in out
    said: list[str] = []
    done = [int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*")]
    if max(done) == 10:
        return  # it was faster than the signal
    run(plan, folder, resume=True, said=said)
    assert any(f"resumed from step {max(done)} (weights, optimizer, scheduler" in line for line in said)
    whole, broken = losses(unbroken), losses(folder)
    assert broken.keys() == whole.keys()
    for step, values in whole.items():
        assert broken[step] == pytest.approx(values, abs=1e-6), step


def test_resume_inside_a_batch(small: Path, env_file: str, tmp_path: Path) -> None:
    """num_iterations 2, saved after the first of two steps on a batch: the second is on the same batch."""
    plan = make_plan(
        small,
        environment=f"{env_file}:Letters",
        config={**CONFIG, "num_iterations": 2},
        steps=6,
        save_every=3,
        keep_checkpoints=2,
    )
    run(plan, tmp_path / "whole")
    short = plan.model_copy(update={"steps": 3})
    run(short, tmp_path / "run")
    run(plan, tmp_path / "run", resume=True)
    whole, broken = losses(tmp_path / "whole"), losses(tmp_path / "run")
    assert broken[4] == pytest.approx(whole[4], abs=1e-6)
    assert broken[6] == pytest.approx(whole[6], abs=1e-6)


def test_resume_without_a_checkpoint_is_an_error(small: Path, env_file: str, tmp_path: Path) -> None:
    from trl_losses import Given

    context = Given(tmp_path, [])
    context.resume = True
    plan = live_plan(small, env_file)
    with pytest.raises(DataError, match="no complete checkpoint"):
        make_trainer(plan).train(plan, context)


def test_checkpoints_are_kept_and_let_go(unbroken: Path) -> None:
    names = sorted(path.name for path in (unbroken / "checkpoints").iterdir())
    assert names == ["step-10", "step-6", "step-8"]
    assert (unbroken / "model" / "config.json").is_file()


def test_a_failed_save_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F17: a limit on file sizes makes the third save fail; the second stays, and is the newest."""
    from atropos_trl.common import checkpoints

    def write(size: int) -> Any:
        return lambda folder: (folder / "weights").write_bytes(b"x" * size)

    checkpoints.save(tmp_path, 1, write(10))
    checkpoints.save(tmp_path, 2, write(10))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(TrainerError, match=r"step-3 \(about 0 MiB\) cannot be written.*step-2 is kept"):
            checkpoints.save(tmp_path, 3, write(5000), needed=5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert checkpoints.newest(tmp_path)[0] == 2
    assert not list((tmp_path / "checkpoints").glob(".writing*"))
    checkpoints.save(tmp_path, 2, write(20))  # a folder of that name is there already
    assert (tmp_path / "checkpoints" / "step-2" / "weights").stat().st_size == 20
    checkpoints.prune(tmp_path, keep=1, best=1)
    assert [step for step, _ in checkpoints.checkpoints(tmp_path)] == [1, 2]
    monkeypatch.setattr(checkpoints, "free_disk", lambda folder: 3)
    with pytest.raises(TrainerError, match="only 0 MiB are free"):
        checkpoints.save(tmp_path, 4, write(1), needed=100)
