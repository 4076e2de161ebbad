"""What is refused before anything heavy is imported, with its message."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from atropos_trl.config import TrlConfig
from atropos_trl.presets import ALGORITHMS, resolve
from atropos_trl.sizes import batch_sizes
from trl_support import make_plan, make_trainer

from atropos_cli.sdk import AtroposError, ConfigError
from atropos_cli.sdk.training import TrainPlan

ENV = "arithmetic"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder as far as checks look: context and number of parameters."""
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))
    header = json.dumps({"w": {"dtype": "F32", "shape": [1000, 1000], "data_offsets": [0, 0]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return tmp_path


def refused(plan: TrainPlan) -> AtroposError:
    with pytest.raises(AtroposError) as caught:
        make_trainer(plan).check(plan)
    assert caught.value.hint
    return caught.value


def test_micro_batch_must_divide_the_rows_of_a_step(folder: Path) -> None:
    """F01: batch size 7 with 8 generations."""
    plan = make_plan(
        folder, environment=ENV, group_size=8, prompts_per_step=1, config={"per_device_train_batch_size": 7}
    )
    error = refused(plan)
    assert error.message == (
        "--per-device-train-batch-size 7 does not divide the 8 rows of a step (1 prompts x 8 completions); "
        "rows are counted in completions"
    )
    assert error.hint == "--per-device-train-batch-size 4 or 8, or --prompts-per-step 7"


def test_sizes_are_derived() -> None:
    plan = make_plan("m", environment=ENV, group_size=16, prompts_per_step=4)
    sizes = batch_sizes(TrlConfig(), plan)
    assert (sizes.rows, sizes.micro, sizes.accumulation) == (64, 32, 2)
    assert "4 prompts x 16 = 64 rows a step = 1 process x 2 micro batches x 32 rows" in str(sizes.describe()["batch"])


def test_prompts_are_split_over_processes() -> None:
    plan = make_plan("m", environment=ENV, group_size=4, prompts_per_step=6)
    sizes = batch_sizes(TrlConfig(), plan, world=2)
    assert (sizes.micro, sizes.accumulation) == (12, 1)
    with pytest.raises(ConfigError, match="cannot be split over 4 processes") as caught:
        batch_sizes(TrlConfig(), plan, world=4)
    assert caught.value.hint == "--prompts-per-step 4 or 8"


def test_a_group_of_one(folder: Path) -> None:
    assert "at least 2 completions" in refused(make_plan(folder, environment=ENV, group_size=1)).message


def test_prompt_and_completion_must_fit_the_context(folder: Path) -> None:
    """F15: the three numbers."""
    plan = make_plan(folder, environment=ENV, max_tokens=8192, config={"max_prompt_tokens": 2048})
    message = refused(plan).message
    assert all(number in message for number in ("2048", "8192", "4096"))
    only = make_plan(folder, environment=ENV, max_tokens=4096)
    assert "4096" in refused(only).message


def test_greedy_sampling(folder: Path) -> None:
    assert "every advantage 0" in refused(make_plan(folder, environment=ENV, temperature=0.0)).message


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"max_prompt_length": 5}, ("knows 'max_prompt_length' no more", "--max-prompt-tokens")),
        ({"use_liger_loss": True}, ("no more", "use_kernels")),
        ({"loss_type": "grpo"}, ("follows from other options", "--algorithm")),
        ({"learning_rate": 1.0}, ("option of its own", "--learning-rate")),
        ({"top_entropy_quantil": 0.2}, ("has no 'top_entropy_quantil'", "'top_entropy_quantile'")),
    ],
)
def test_names_handed_to_trl(folder: Path, extra: dict[str, Any], words: tuple[str, str]) -> None:
    pytest.importorskip("trl")
    error = refused(make_plan(folder, environment=ENV, config={"extra": extra}))
    assert words[0] in error.message
    assert words[1] in str(error.hint)


def test_known_extra_names_pass(folder: Path) -> None:
    plan = make_plan(folder, environment=ENV, config={"extra": {"top_entropy_quantile": 0.2, "adam_beta2": 0.99}})
    shown = make_trainer(plan).check(plan)
    assert shown["parameters"] == 1_000_000


def test_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from atropos_trl import checks

    plan = make_plan(folder, environment=ENV)
    monkeypatch.setattr(checks, "_GPU", folder / "none")
    monkeypatch.setattr(checks, "free_memory", lambda: 10_000_000)
    error = refused(plan)
    assert "1M parameters take about 15 MiB" in error.message
    assert "--lora-r" in str(error.hint)


def test_behaviour_logprobs_must_be_tempered(folder: Path) -> None:
    plan = make_plan(folder, environment=ENV, temperature=0.7, config={"behaviour_logprobs": True})
    assert plan.rollouts is not None
    raw = plan.rollouts.backend.model_copy(update={"config": {}})
    plan = plan.model_copy(update={"rollouts": plan.rollouts.model_copy(update={"backend": raw})})
    assert "not tempered" in refused(plan).message


def test_rloo_is_on_policy(folder: Path) -> None:
    plan = make_plan(folder, environment=ENV, config={"algorithm": "rloo", "num_iterations": 2})
    assert "on-policy" in refused(plan).message


def test_arithmetic_preset() -> None:
    """The trainer's part of it; what it proposes for the rollouts is in test_options."""
    plan = make_plan("m", environment=ENV, group_size=16, temperature=0.7, config={"preset": "arithmetic"})
    found = resolve(TrlConfig(preset="arithmetic"), plan)
    assert (found.algorithm, found.beta, found.learning_rate) == ("grpo", 0.1, 5e-6)
    assert resolve(TrlConfig(preset="arithmetic", beta=0.0, learning_rate=1e-5), plan).beta == 0.0
    from atropos_trl.presets import preset_differences

    assert preset_differences(TrlConfig(preset="arithmetic"), plan) == {}
    other = make_plan("m", environment=ENV, group_size=8, temperature=0.7)
    assert preset_differences(TrlConfig(preset="arithmetic"), other) == {"group_size": [8, 16], "rows": [32, 64]}


def test_algorithms_in_trls_terms() -> None:
    """Both halves of Dr. GRPO, GSPO's and CISPO's clip ranges: as formulas.md and the papers give them."""
    assert (ALGORITHMS["dr_grpo"].loss_type, ALGORITHMS["dr_grpo"].scale_rewards) == ("dr_grpo", "none")
    assert (ALGORITHMS["gspo"].level, ALGORITHMS["gspo"].epsilon, ALGORITHMS["gspo"].epsilon_high) == (
        "sequence",
        3e-4,
        4e-4,
    )
    assert ALGORITHMS["dapo"].epsilon_high == 0.28
    assert ALGORITHMS["cispo"].epsilon_high == 5.0


def test_checks_are_quick_and_import_nothing_heavy(folder: Path) -> None:
    """F01: before a model is loaded, in well under a second of CPU."""
    program = (
        "import sys, time\n"
        "from atropos_cli.sdk.training import *\n"
        "from atropos_trl.trainer import TrlTrainer\n"
        "began = time.process_time()\n"
        "plan = TrainPlan.model_validate_json(sys.argv[1])\n"
        "TrlTrainer(TrlTrainer.Config()).check(plan)\n"
        "print(time.process_time() - began, [m for m in ('torch', 'trl', 'transformers') if m in sys.modules])\n"
    )
    plan = make_plan(folder, environment=ENV)
    done = subprocess.run(
        [sys.executable, "-c", program, plan.model_dump_json()],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ},
    )
    seconds, modules = done.stdout.split(" ", 1)
    assert modules.strip() == "[]"
    assert float(seconds) < 1.0
