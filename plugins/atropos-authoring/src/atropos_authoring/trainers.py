"""What every trainer must do, as tests. Subclass TrainerContract and give the class.

Needs torch, transformers and atropos-training: the tests train by the command `atropos train`, each time in a process
of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from atropos_cli.sdk.authoring import check_component, load_registry
from atropos_cli.sdk.commands import ExitCode
from atropos_cli.sdk.training import TrainPlan

DIGITS = f"{Path(__file__).with_name('digits.py')}:Digits"


class TrainerContract:
    """Set `trainer`, and `options` where its defaults do not suit a model of a few thousand weights.

    target: "./file.py:Class" or the installed name, as on the command line. steps: enough to see learning.
    """

    target: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    steps: ClassVar[int] = 12

    @pytest.fixture
    def model(self, tmp_path: Path) -> str:
        """The folder of a tiny random model."""
        return str(tiny_model(tmp_path / "model"))

    @pytest.fixture(scope="class")
    @classmethod
    def trained(cls, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
        """The state and the folder of one training of all steps, for the tests that only look at its end."""
        folder = tmp_path_factory.mktemp("trained")
        return cls._train(str(tiny_model(folder / "model")), folder / "run", cls.steps), folder / "run"

    def test_the_class_is_complete(self) -> None:
        cls = load_registry().find("trainer", self.target).load()
        check_component("trainer", cls.name, cls, origin="the tests")

    def test_it_checks_a_plan_without_loading_the_model(self, model: str, tmp_path: Path) -> None:
        for weights in Path(model).glob("*.safetensors"):
            weights.unlink()
        done = _atropos(*self._words(model, tmp_path / "run", 2, None), "--dry-run", "--json")
        assert done.returncode == ExitCode.OK, done.stderr
        shown = json.loads(done.stdout)
        plan = TrainPlan.model_validate(
            {name: value for name, value in shown.items() if name in TrainPlan.model_fields}
        )
        cls = load_registry().find("trainer", self.target).load()
        trainer = cls(cls.Config.model_validate(plan.trainer.config))
        began = time.process_time()
        found = trainer.check(plan)
        assert time.process_time() - began < 5
        assert shown["derived"] == json.loads(json.dumps(found))

    def test_it_learns(self, trained: tuple[dict[str, Any], Path]) -> None:
        """The reward of the last steps is higher than that of the first ones: digits instead of any bytes."""
        result, run = trained
        assert result["step"] == self.steps
        means = _reward_means(run, self.steps)
        third = max(1, len(means) // 3)
        assert sum(means[-third:]) / third > sum(means[:third]) / third + 0.05, means

    def test_the_weights_can_be_loaded(self, trained: tuple[dict[str, Any], Path]) -> None:
        from transformers import AutoModelForCausalLM

        AutoModelForCausalLM.from_pretrained(trained[1] / "model")

    def test_sigterm_leaves_a_state_to_go_on_from(self, model: str, tmp_path: Path) -> None:
        """The signal comes while the third of six steps rolls; the same numbers come out as without a break."""
        self._train(model, tmp_path / "whole", 6)
        run, marker = tmp_path / "broken", tmp_path / "interrupted"
        stopped = self._train(model, run, 6, interrupt=marker)
        assert marker.exists()
        assert stopped["state"] == "interrupted"
        assert stopped["step"] < 6
        self._train(model, run, 6, interrupt=marker, resume=True)
        assert _losses(run) == pytest.approx(_losses(tmp_path / "whole"), rel=1e-3, abs=1e-5)

    @classmethod
    def _words(cls, model: str, folder: Path, steps: int, interrupt: Path | None) -> list[str]:
        """The command line; the settings are in a file, in which values keep their types."""
        settings: dict[str, Any] = {
            "model": model,
            "group_size": 4,
            "sampling": {"max_tokens": 4},
            "backend_options": {"chat_template": "plain"},
            "train": {"env": DIGITS, "trainer": cls.target, "steps": steps, "prompts_per_step": 2, "save_every": 1},
            "trainer": cls.options,
            "env": {} if interrupt is None else {"interrupt": str(interrupt)},
        }
        file = folder.with_name(f"{folder.name}.json")
        file.write_text(json.dumps(settings))
        return ["train", "grpo", "--config", str(file), "--output", str(folder)]

    @classmethod
    def _train(
        cls, model: str, folder: Path, steps: int, *, interrupt: Path | None = None, resume: bool = False
    ) -> dict[str, Any]:
        """Train until the end or until interrupted; the run's train.json."""
        done = _atropos(*cls._words(model, folder, steps, interrupt), *(["--resume"] if resume else []))
        assert done.returncode in (ExitCode.OK, ExitCode.INTERRUPTED), done.stderr
        state: dict[str, Any] = json.loads((folder / "train.json").read_text())
        assert state["state"] == ("finished" if done.returncode == ExitCode.OK else "interrupted")
        return state


def _atropos(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command with one thread for torch: more wait for each other on a busy machine, and the model is tiny."""
    command = [sys.executable, "-m", "atropos_cli", *words]
    env = {"OMP_NUM_THREADS": "1", **os.environ}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)  # noqa: S603 (no shell, our own words)


def tiny_model(folder: Path) -> Path:
    """Write a random llama of one layer and a tokenizer of bytes to a folder. Needs torch and transformers."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    end = len(alphabet)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=end + 1,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            bos_token_id=None,
            eos_token_id=end,
            pad_token_id=end,
        )
    )
    model.save_pretrained(folder)
    ends = {"eos_token": "<|end|>", "pad_token": "<|end|>"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **ends).save_pretrained(folder)
    return folder


def _losses(run: Path) -> list[float]:
    return [record["loss"] for record in _records(run / "metrics.jsonl") if "loss" in record]


def _reward_means(run: Path, steps: int) -> list[float]:
    """Mean reward of each step, by the groups that were rolled."""
    means = []
    for record in _records(run / "groups.jsonl"):
        rewards = [rollout["reward"] for rollout in record["rollouts"] if rollout["reward"] is not None]
        means.append(sum(rewards) / len(rewards))
    size = max(1, len(means) // steps)
    return [sum(means[at : at + size]) / size for at in range(0, len(means), size)]


def _records(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
