"""The saved model is the trained one: merged adapters, tied weights, end marks, a folder that is loaded again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.sdk.training import TrainerError

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

IDS = [[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]]


@pytest.fixture(name="tokenizer")
def tokenizer_fixture() -> Any:
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["x", "<end>", "<turn>", *"abcdefghijklm"]
    raw = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="x"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    raw.add_special_tokens([AddedToken("<end>", special=True), AddedToken("<turn>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", pad_token="<end>")


def model(*, tied: bool) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=16, eos_token_id=1, tie_word_embeddings=tied, **sizes))


def adapted(base: Any, *targets: str) -> Any:
    """A model with adapters that change it visibly."""
    from peft import LoraConfig, get_peft_model

    found = get_peft_model(base, LoraConfig(r=4, target_modules=list(targets), task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, weights in found.named_parameters():
            if "lora_" in name:
                weights.normal_(std=0.7)
    return found


def logits(found: Any) -> Any:
    found.eval()
    with torch.no_grad():
        return found(input_ids=torch.tensor(IDS)).logits


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "targets", [("q_proj", "lm_head"), ("embed_tokens",), ("embed_tokens", "lm_head"), ("q_proj",)]
)
def test_adapters_are_merged_where_they_belong(
    tied: bool, targets: tuple[str, ...], tokenizer: Any, tmp_path: Path
) -> None:
    from atropos_trl.common.publishing import publish
    from transformers import AutoModelForCausalLM

    trained = adapted(model(tied=tied), *targets)
    expected = logits(trained)
    folder = publish(tmp_path / "model", trained, tokenizer, step=3)
    found = AutoModelForCausalLM.from_pretrained(str(folder))
    assert float((logits(found) - expected).abs().max()) < 1e-3


def test_another_model_is_not_called_finished(tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when saving goes wrong without a word."""
    from atropos_trl.common.publishing import publish

    trained, other = model(tied=False), model(tied=False)
    with torch.no_grad():
        other.lm_head.weight.mul_(3)
    monkeypatch.setattr(trained, "save_pretrained", other.save_pretrained)
    with pytest.raises(TrainerError, match="is not the trained one"):
        publish(tmp_path / "model", trained, tokenizer, step=3)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("ends", "mark"), [((2, 2), 2), ((2, 5), None), ((5, 5), None), ((1, 1), None), ((2, 1), None)]
)
def test_the_mark_that_all_rows_end_with(ends: tuple[int, int], mark: int | None, tokenizer: Any) -> None:
    from atropos_trl.building import learnt_end

    from atropos_cli.sdk.training import demonstrations

    rows = [{"input_ids": [4, 6, end], "labels": [-100, 6, end]} for end in ends]
    assert learnt_end(demonstrations(rows, tokenizer, max_length=None), tokenizer) == mark
    known = demonstrations(rows, tokenizer, max_length=None, ends=frozenset({2}))
    assert learnt_end(known, tokenizer) is None


def test_two_end_tokens_are_no_reason_to_warn(tokenizer: Any, tmp_path: Path) -> None:
    from types import SimpleNamespace

    from atropos_trl.checks import check_tokenizer
    from atropos_trl.common.models import end_ids

    said: list[str] = []
    context: Any = SimpleNamespace(warn=said.append)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}<turn>{% endfor %}"
    trained = model(tied=False)
    trained.generation_config.eos_token_id = [1, 2]
    trained.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"] == [1, 2]
    assert end_ids(str(tmp_path)) == {1, 2}
    check_tokenizer(tokenizer, "m", context, ends=end_ids(str(tmp_path)))
    assert said == []
    check_tokenizer(tokenizer, "m", context)
    assert "does not end an assistant turn" in said[0]
