"""Weights out of a module in memory: the names and values that a saved model has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from atropos_vllm.weights import clean_name, named_weights
from vllm_support import SIZES, small_llama

from atropos_cli.sdk.backends import FatalBackendError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.model


def saved(model: Any, folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    model.save_pretrained(folder)
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def shaken(model: Any, words: tuple[str, ...]) -> Any:
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(word in name for word in words):
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def adapted(model: Any, **changes: Any) -> Any:
    peft = pytest.importorskip("peft")
    settings = {"r": 4, "target_modules": ["q_proj", "v_proj", "down_proj"], "task_type": "CAUSAL_LM", **changes}
    return shaken(peft.get_peft_model(model, peft.LoraConfig(**settings)), ("lora_", "modules_to_save"))


def test_names_lose_what_adapters_and_wrappers_put_into_them() -> None:
    assert clean_name("model.layers.0.self_attn.q_proj.base_layer.weight") == "model.layers.0.self_attn.q_proj.weight"
    assert clean_name("lm_head.modules_to_save.default.weight") == "lm_head.weight"
    assert clean_name("_orig_mod.model._checkpoint_wrapped_module.norm.weight") == "model.norm.weight"


@pytest.mark.parametrize("tied", [True, False])
def test_a_plain_model_gives_what_its_files_hold(tied: bool, tmp_path: Path) -> None:
    model = small_llama(tie_word_embeddings=tied)
    same(dict(named_weights(model)), saved(model, tmp_path))


def test_values_are_not_copied() -> None:
    model = small_llama()
    places = {parameter.data_ptr() for parameter in model.parameters()}
    assert {tensor.data_ptr() for _, tensor in named_weights(model)} == places


def test_experts_get_the_names_that_they_have_in_files(tmp_path: Path) -> None:
    """transformers holds the experts of a layer in one tensor; files and vLLM have them one by one."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    sizes = {**SIZES, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes))
    found = dict(named_weights(model))
    assert "model.layers.1.mlp.experts.3.down_proj.weight" in found
    same(found, saved(model, tmp_path))


@pytest.mark.parametrize(
    "changes",
    [{}, {"use_dora": True}, {"modules_to_save": ["lm_head"]}, {"target_modules": ["embed_tokens", "o_proj"]}],
    ids=["lora", "dora", "modules-to-save", "embedding"],
)
def test_adapters_are_merged_and_the_module_stays_as_it_was(changes: dict[str, Any], tmp_path: Path) -> None:
    model = adapted(small_llama(), **changes)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    places = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    found = {name: tensor.clone() for name, tensor in named_weights(model)}
    after = model.state_dict()
    same(dict(after), before)
    assert {name: parameter.data_ptr() for name, parameter in model.named_parameters()} == places
    assert not any(getattr(module, "merged", False) for module in model.modules())
    expected = saved(model.merge_and_unload(), tmp_path)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, msg=name)


def test_an_adapter_changes_the_weights_that_are_handed_over() -> None:
    plain = dict(named_weights(small_llama()))
    found = dict(named_weights(adapted(small_llama())))
    changed = {name for name, tensor in plain.items() if not torch.equal(tensor, found[name])}
    assert changed == {
        f"model.layers.{layer}.{part}.weight"
        for layer in (0, 1)
        for part in ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")
    }


def test_a_disabled_adapter_is_not_merged() -> None:
    model = adapted(small_llama())
    with model.disable_adapter():
        found = dict(named_weights(model))
    same(found, dict(named_weights(small_llama())))


def test_gradients_and_training_go_on_after_a_handover() -> None:
    model = adapted(small_llama())
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    first = dict(named_weights(model))["model.layers.0.self_attn.q_proj.weight"].clone()
    model(torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss.backward()
    optimiser.step()
    second = dict(named_weights(model))["model.layers.0.self_attn.q_proj.weight"]
    assert not torch.equal(first, second)


def test_quantised_weights_are_refused() -> None:
    model = small_llama()
    packed = torch.nn.Parameter(torch.zeros(8, 1, dtype=torch.uint8), requires_grad=False)
    model.model.layers[0].mlp.up_proj.weight = packed
    with pytest.raises(FatalBackendError, match="quantised"):
        list(named_weights(model))
