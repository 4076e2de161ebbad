"""A run that is killed or asked to stop goes on as if nothing had happened: same losses, same weights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from native_support import Folder, arithmetic, make_groups, make_plan, train

from atropos_cli.sdk import ConfigError, DataError
from atropos_cli.sdk.training import TrainerError

CONFIG = {"algorithm": "grpo", "learning_rate": 0.003, "old_policy": "current", "num_iterations": 2, "beta": 0.01}
STEPS = 12

SCRIPT = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from native_support import Folder, make_groups, make_plan, train
run, tiny, resume = Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "resume"
out = open(run / "steps.jsonl", "a", buffering=1)
context = Folder(run, make_groups(5), resume=resume)
def told(step):
    out.write(json.dumps([step, context.reports[-1][1]["loss"], context.reports[-1][1]["grad_norm"]]) + "\\n")
    time.sleep(0.05)
context.on_report = told
plan = make_plan(tiny, config=json.loads(sys.argv[5]), prompts_per_step=3, steps=int(sys.argv[6]), save_every=2)
train(plan, context)
"""


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def whole(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[int, Any], dict[str, torch.Tensor]]:
    """A run without a break: (loss and gradient norm by step, final weights)."""
    folder = tmp_path_factory.mktemp("whole")
    context = Folder(folder, make_groups(5))
    result = train(make_plan(tiny, config=CONFIG, prompts_per_step=3, steps=STEPS, save_every=2), context)
    assert result.stopped is None
    assert result.steps == STEPS
    assert [step for step, _ in context.reports] == list(range(1, STEPS + 1))
    assert context.evaluated == [(0, False), (STEPS, True)]
    return {step: (m["loss"], m["grad_norm"]) for step, m in context.reports}, weights(Path(result.output))


def test_kill_dash_nine(tiny: Path, tmp_path: Path, whole: Any) -> None:
    def start(mode: str) -> subprocess.Popen[bytes]:
        words = [str(Path(__file__).parent), str(tmp_path), str(tiny), mode, json.dumps(CONFIG), str(STEPS)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen([sys.executable, "-c", SCRIPT, *words], env=env, stderr=subprocess.PIPE)

    process = start("new")
    steps = tmp_path / "steps.jsonl"
    until = time.monotonic() + 120
    while not steps.exists() or len(steps.read_text().splitlines()) < 7:
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    saved = max(int(path.name[5:]) for path in (tmp_path / "checkpoints").glob("step-*"))
    assert 4 <= saved < STEPS
    before = len(steps.read_text().splitlines())
    again = start("resume")
    assert again.wait(timeout=120) == 0, again.stderr.read().decode() if again.stderr else ""
    told = [json.loads(line) for line in steps.read_text().splitlines()]
    assert [step for step, *_ in told[before:]] == list(range(saved + 1, STEPS + 1))
    for step, loss, norm in told:
        assert (loss, norm) == pytest.approx(whole[0][step], rel=1e-6, abs=1e-9)
    for name, tensor in weights(tmp_path / "model").items():
        torch.testing.assert_close(tensor, whole[1][name], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("stop", [1, 6, 9])
def test_asked_to_stop(tiny: Path, tmp_path: Path, whole: Any, stop: int) -> None:
    plan = make_plan(tiny, config=CONFIG, prompts_per_step=3, steps=STEPS)
    context = Folder(tmp_path, make_groups(5), stop_at=stop)
    result = train(plan, context)
    ended = stop + stop % 2  # both steps on a batch are done, so that it need not be kept
    assert (result.stopped, result.steps) == ("interrupted", ended)
    assert Path(result.output).name == f"step-{ended}"
    again = Folder(tmp_path, make_groups(5), resume=True)
    result = train(plan, again)
    assert result.stopped is None
    assert again.warnings == [f"resumed from step {ended} (weights, optimizer, random state, place in the data)"]
    assert again.evaluated == [(STEPS, True)]
    for step, metrics in context.reports + again.reports:
        assert (metrics["loss"], metrics["grad_norm"]) == pytest.approx(whole[0][step], rel=1e-6, abs=1e-9)
    for name, tensor in weights(Path(result.output)).items():
        torch.testing.assert_close(tensor, whole[1][name], rtol=1e-5, atol=1e-7)


def test_adapters_resume_and_are_merged(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    config = {"learning_rate": 0.01, "old_policy": "current", "lora_r": 4, "beta": 0.1}
    plan = make_plan(tiny, config=config, prompts_per_step=3, steps=6)
    straight = Folder(tmp_path / "straight", make_groups(5))
    final = weights(Path(train(plan, straight).output))
    first, second = Folder(tmp_path / "cut", make_groups(5), stop_at=2), None
    stopped = train(plan, first)
    assert straight.reports[-1][1]["kl"] > 0
    loaded = AutoModelForCausalLM.from_pretrained(stopped.output)  # base and adapters
    assert any("lora" in name for name, _ in loaded.named_parameters())
    second = Folder(tmp_path / "cut", make_groups(5), resume=True)
    merged = weights(Path(train(plan, second).output))
    assert not any("lora" in name for name in merged)
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, final[name], rtol=1e-4, atol=1e-6)
    base = weights(tiny)
    changed = {name for name, tensor in merged.items() if not torch.equal(tensor, base[name])}
    assert changed
    assert all("proj" in name for name in changed)


def test_a_step_without_an_advantage_moves_a_resumed_run_as_it_moves_others(tiny: Path, tmp_path: Path) -> None:
    """The optimiser's moments go on: the first step after a break has no gradient of an earlier one to show it."""
    groups = make_groups(6, seed=3)
    for at in (2, 3):
        equal = [one.model_copy(update={"reward": 1.0}) for one in groups[at].rollouts]
        groups[at] = groups[at].model_copy(update={"rollouts": tuple(equal)})
    plan = make_plan(
        tiny, config={"learning_rate": 0.003, "old_policy": "current"}, prompts_per_step=2, steps=3, save_every=1
    )
    straight = Folder(tmp_path / "straight", groups)
    final = weights(Path(train(plan, straight).output))
    assert straight.reports[1][1]["grad_norm"] == 0
    train(plan, Folder(tmp_path / "cut", groups, stop_at=1))
    resumed = weights(Path(train(plan, Folder(tmp_path / "cut", groups, resume=True)).output))
    for name, tensor in resumed.items():
        torch.testing.assert_close(tensor, final[name], rtol=0, atol=0)


@pytest.mark.parametrize("lost", [[4, 5], [6, 7, 8, 9]])
def test_tasks_without_a_rollout_end_no_later_pass(tiny: Path, tmp_path: Path, lost: list[int]) -> None:
    class Lossy(Folder):
        def roll(self, places: Any, *, step: int) -> Any:
            found = super().roll(places, step=step)
            return [[] if place in lost else groups for place, groups in zip(places, found, strict=True)]

    context = Lossy(tmp_path, make_groups(4), tasks=4)
    rollouts = arithmetic(tiny, 8)
    train(make_plan(tiny, prompts_per_step=2, steps=None, epochs=3, rollouts=rollouts, data=()), context)
    rows = [metrics["rows"] for _, metrics in context.reports]
    wanted = [0.0 if place in lost else 8.0 for place in range(0, 12, 2)]
    assert rows == wanted


def test_nothing_to_resume_from(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no complete checkpoint"):
        train(make_plan(tiny, config={"old_policy": "current"}), Folder(tmp_path, make_groups(1), resume=True))


def test_one_pass_over_the_data(tiny: Path, tmp_path: Path) -> None:
    context = Folder(tmp_path, make_groups(5))
    train(make_plan(tiny, prompts_per_step=2, steps=None), context)
    assert len(context.reports) == 3
    assert [m["rows"] for _, m in context.reports] == [8, 8, 4]
    with pytest.raises(TrainerError, match="the data holds no groups"):
        train(make_plan(tiny, steps=None), Folder(tmp_path / "2", []))


def test_a_step_that_is_not_finite_changes_nothing(tiny: Path, tmp_path: Path) -> None:
    """Field case F08: one batch with log-probabilities whose ratio overflows."""
    groups = make_groups(6)
    broken = groups[2].rollouts[0]
    tokens = broken.messages[1].tokens
    assert tokens is not None
    ruined = tokens.model_copy(update={"logprobs": (-1000.0,) * len(tokens.ids)})
    message = broken.messages[1].model_copy(update={"tokens": ruined})
    members = (broken.replace(messages=(broken.messages[0], message, *broken.messages[2:]), reward=-3.0),)
    groups[2] = groups[2].replace(rollouts=members + groups[2].rollouts[1:])
    context = Folder(tmp_path, groups)
    train(make_plan(tiny, prompts_per_step=1, steps=5, config={"learning_rate": 0.01}), context)
    assert [m["skipped_steps"] for _, m in context.reports] == [0, 0, 1, 1, 1]
    assert not all(torch.isfinite(torch.tensor([context.reports[2][1][n] for n in ("loss", "grad_norm")])))
    assert all(torch.isfinite(tensor).all() for tensor in weights(tmp_path / "model").values())


@pytest.mark.parametrize(
    ("fields", "config", "message"),
    [
        ({"save_every": 3}, {"num_iterations": 2}, "--save-every 3 is no multiple of --num-iterations 2"),
        ({"eval_every": 5}, {"num_iterations": 2}, "--eval-every 5 is no multiple"),
        ({"steps": None}, {"lr_scheduler_type": "linear"}, "--lr-scheduler-type linear needs --steps"),
        ({}, {"algorithm": "dr_grpo"}, "dr_grpo on stored groups needs the limit"),
        ({"rewards": ({"name": "exact_match"},)}, {}, "takes scored groups, not prompts with a reward"),
    ],
)
def test_what_cannot_work_is_said_before_a_model_is_loaded(fields: Any, config: Any, message: str) -> None:
    from atropos_trl.native.trainer import NativeTrainer

    trainer = NativeTrainer(NativeTrainer.Config.model_validate(config))
    with pytest.raises(ConfigError, match=message) as caught:
        trainer.check(make_plan("no-such-model", **fields))
    assert caught.value.hint


def test_a_stop_rule_leaves_a_checkpoint(tiny: Path, tmp_path: Path) -> None:
    context = Folder(tmp_path, make_groups(5))

    def rule(step: int) -> None:
        if step == 3:
            raise TrainerError("stopped by a rule")

    context.on_report = rule
    with pytest.raises(TrainerError, match="by a rule"):
        train(make_plan(tiny, config={"old_policy": "current"}, prompts_per_step=2, steps=50), context)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-3"]


def test_mixed_precision_is_near_full_precision(tiny: Path, tmp_path: Path) -> None:
    norms = []
    for precision in ("fp32", "bf16"):
        context = Folder(tmp_path / precision, make_groups(5))
        train(make_plan(tiny, config={"old_policy": "current", "precision": precision}, prompts_per_step=5), context)
        norms.append(context.reports[0][1]["grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=0.02)
    assert norms[0] != norms[1]
    assert all(tensor.dtype == torch.float32 for tensor in weights(tmp_path / "bf16" / "model").values())
