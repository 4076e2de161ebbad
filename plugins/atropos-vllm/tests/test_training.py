"""Real GRPO steps by TRL with vLLM beside the trainer. Runs where both are installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.trainers import DIGITS
from vllm_support import byte_tokenizer, logprobs_by_torch, small_llama

from atropos_cli.cli.app import run

for _package in ("vllm", "torch", "trl", "peft"):
    pytest.importorskip(_package, reason=f"{_package} is not installed here")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

STEPS, PROMPTS, SAMPLES = 3, 2, 4


def train(folder: Path, model: Path, **options: Any) -> None:
    settings = {
        "model": str(model),
        "backend": "vllm",
        "backend_options": {"chat_template": "plain", "enforce_eager": True, "max_num_seqs": 16},
        "group_size": SAMPLES,
        "sampling": {"max_tokens": 6, "temperature": 0.9},
        "train": {
            "env": DIGITS,
            "trainer": "trl",
            "steps": STEPS,
            "prompts_per_step": PROMPTS,
            "save_every": 1,
            "keep_checkpoints": STEPS,
        },
        "trainer": {"learning_rate": 1e-2, **options},
    }
    file = folder.with_name("settings.json")
    file.write_text(json.dumps(settings))
    assert run(["train", "grpo", "--config", str(file), "--output", str(folder)]) == 0


def weights_after(step: int, run: Path, model: Path) -> Any:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    if step == 0:
        return AutoModelForCausalLM.from_pretrained(model, dtype="float32")
    checkpoint = run / "checkpoints" / f"step-{step}"
    if (checkpoint / "adapter_config.json").is_file():
        return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model, dtype="float32"), checkpoint)
    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype="float32")


def groups_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "groups.jsonl").read_text().splitlines()]


def compare(groups: list[dict[str, Any]], run: Path, model: Path) -> None:
    """Each step's log-probabilities are those of the weights that were saved after the one before."""
    each = len(groups) // STEPS
    moved = 0.0
    first = weights_after(0, run, model)
    for step in range(STEPS):
        now = weights_after(step, run, model)
        for group in groups[step * each : (step + 1) * each]:
            for rollout in group["rollouts"]:
                prompt, reply = (message["tokens"] for message in rollout["messages"][-2:])
                expected = logprobs_by_torch(now, prompt["ids"], reply["ids"], temperature=0.9)
                assert reply["logprobs"] == pytest.approx(expected, abs=2e-3), f"step {step}"
                old = logprobs_by_torch(first, prompt["ids"], reply["ids"], temperature=0.9)
                moved = max(moved, *(abs(a - b) for a, b in zip(expected, old, strict=True)))
    assert moved > 0.05, "the weights hardly changed, so that this would prove nothing"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    small_llama(tie_word_embeddings=True).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("options", [{}, {"lora_r": 4}], ids=["whole", "lora"])
def test_each_step_samples_from_the_weights_that_the_one_before_left(
    options: dict[str, Any], model: Path, tmp_path: Path
) -> None:
    train(tmp_path / "run", model, **options)
    groups = groups_of(tmp_path / "run")
    assert len(groups) == STEPS * PROMPTS
    compare(groups, tmp_path / "run", model)


def test_two_processes_have_an_engine_each_with_the_weights_of_both(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = (
        f"train grpo --env {DIGITS} --model {model} --backend vllm --backend.chat-template plain "
        "--backend.enforce-eager --backend.max-num-seqs 16 --max-tokens 6 --temperature 0.9 --learning-rate 1e-2 "
        f"--group-size {SAMPLES} --prompts-per-step {2 * PROMPTS} --steps {STEPS} --save-every 1 "
        f"--keep-checkpoints {STEPS} --processes 2 --output {folder}"
    )
    command = [sys.executable, "-m", "atropos_cli", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-4000:]
    for part in (folder, folder / "ranks" / "1"):
        groups = groups_of(part)
        assert len(groups) == STEPS * PROMPTS
        compare(groups, folder, model)
