"""QLoRA by the real bitsandbytes: the gradients, the resumed run and the published model."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from native_support import Folder, arithmetic, make_groups, make_plan, train

from atropos_cli.sdk import ConfigError, ScoredGroup

pytest.importorskip("bitsandbytes")

LORA = {"lora_r": 4, "lora_alpha": 8, "learning_rate": 0.02, "lora_target_modules": "q_proj,v_proj,down_proj"}
BITS = {**LORA, "lora_4bit": True}


class Sampled(Folder):
    """Its model computes without gradients before each step, as it does to sample."""

    def roll(self, places: Sequence[int], *, step: int) -> list[list[ScoredGroup]]:
        with torch.no_grad():
            self.model.eval()
            self.model(torch.tensor([[3, 4, 5]]))
            self.model.train()
        return super().roll(places, step=step)


def trained(model: Path, folder: Path, config: dict[str, Any], steps: int = 3, *, resume: bool = False) -> Sampled:
    folder.mkdir(exist_ok=True)
    context = Sampled(folder, make_groups(5), resume=resume)
    plan = make_plan(model, config=config, prompts_per_step=3, steps=steps, data=(), rollouts=arithmetic(model, 4))
    train(plan, context)
    return context


@pytest.fixture(scope="module")
def rounded(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with what 4 bits leave of its weights, in fp32."""
    from atropos_trl.common.models import four_bits, load_model
    from bitsandbytes.functional import dequantize_4bit
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("rounded") / "model"
    shutil.copytree(tiny, folder)
    whole = AutoModelForCausalLM.from_pretrained(tiny)
    small = load_model(str(tiny), bits=four_bits(None), device="cpu")
    changed = 0
    for name, module in small.named_modules():
        if hasattr(module, "compute_dtype"):
            weight = whole.get_submodule(name).weight
            back = dequantize_4bit(module.weight.data, module.weight.quant_state).float()
            changed += not torch.equal(weight, back)
            weight.data.copy_(back)
    assert changed == 14
    whole.save_pretrained(folder)
    return folder


def test_the_gradients_are_those_of_the_rounded_weights(tiny: Path, rounded: Path, tmp_path: Path) -> None:
    """All layers, also those below other ones; after the model has sampled, and after a checkpoint."""
    bits = trained(tiny, tmp_path / "bits", BITS)
    whole = trained(rounded, tmp_path / "whole", LORA)
    for name in ("loss", "grad_norm", "entropy"):
        wanted = [numbers[name] for _, numbers in whole.reports]
        assert [numbers[name] for _, numbers in bits.reports] == pytest.approx(wanted, rel=1e-3, abs=1e-6)
    assert all(numbers["grad_norm"] > 0 for _, numbers in bits.reports)


def test_it_is_resumed_and_published_in_full(tiny: Path, tmp_path: Path) -> None:
    whole = trained(tiny, tmp_path / "whole", BITS, 4)
    trained(tiny, tmp_path / "broken", BITS, 2)
    shutil.rmtree(tmp_path / "broken" / "model")
    again = trained(tiny, tmp_path / "broken", BITS, 4, resume=True)
    assert [step for step, _ in again.reports] == [3, 4]
    for name in ("loss", "grad_norm"):
        wanted = [numbers[name] for _, numbers in whole.reports[2:]]
        assert [numbers[name] for _, numbers in again.reports] == pytest.approx(wanted, rel=1e-4, abs=1e-7)
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    published = AutoModelForCausalLM.from_pretrained(tmp_path / "whole" / "model").state_dict()
    adapted = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tiny), str(tmp_path / "whole" / "checkpoints" / "step-4")
    )
    merged = adapted.merge_and_unload().state_dict()
    assert published.keys() == merged.keys()
    assert all(torch.allclose(published[name], merged[name], atol=1e-6) for name in merged)


@pytest.mark.parametrize("config", [BITS, LORA, {"learning_rate": 0.02}])
def test_weights_that_are_stored_quantised_are_refused(tiny: Path, tmp_path: Path, config: dict[str, Any]) -> None:
    """Else norms and embeddings alone would be trained, or adapters merged into 4 bits."""
    from atropos_trl.common.models import four_bits, load_model

    shutil.copytree(tiny, tmp_path / "small")
    (tmp_path / "small" / "model.safetensors").unlink()
    load_model(str(tiny), bits=four_bits(None), device="cpu").save_pretrained(tmp_path / "small")
    with pytest.raises(ConfigError, match="are stored quantised"):
        trained(tmp_path / "small", tmp_path / "run", config)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_role_is_played_by_earlier_weights(tiny: Path, tmp_path: Path) -> None:
    """The copy of the model takes its weights again, and those of the file in the run's folder."""
    frozen = pytest.importorskip("atropos_training.frozen")
    from atropos_trl.native import weights
    from atropos_trl.native.config import NativeConfig

    model, _ = weights.load(str(tiny), NativeConfig.model_validate(BITS), None, device=torch.device("cpu"))
    copy = frozen.FrozenCopy(2, tmp_path, Backend(), model, None)
    answers = []
    for step, resumed in ((0, False), (2, False), (3, True)):
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.data.add_(0.1)
        copy.renew(model, step, Backend(), keeps=True, resumed=resumed)
        with torch.no_grad():
            answers += [one.eval()(torch.tensor([[3, 4, 5]])).logits for one in (model, copy._model)]
        copy._period = None
    (first, kept), (second, renewed), (third, again) = zip(answers[::2], answers[1::2], strict=True)
    assert torch.equal(first, kept)
    assert torch.equal(second, renewed)
    assert torch.equal(second, again)
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


class Backend:
    """A backend and the loop that asks it: they take what comes."""

    def adopt(self, model: Any, tokenizer: Any) -> None: ...

    def update_weights(self, source: Any, *, version: int) -> None: ...

    def call(self, done: None) -> None: ...
