"""`--recipe`: what stands beside the rows names columns that they have, in the words of each trainer's loader.

The loaders themselves are asked where they are installed (they need other versions of our libraries, so the suite's
environment has none of them): `llamafactory` 0.9.5, `axolotl` 0.19, `verl` 0.9.1.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

CLI = Callable[..., Any]


@pytest.fixture
def rows() -> str:
    """Two rollouts each at four tasks of two turns."""
    lines = []
    for n in range(4):
        start = [
            {"role": "system", "content": "Be exact."},
            {"role": "user", "content": f"{n} + 1?"},
            {"role": "assistant", "content": "Let me see."},
            {"role": "user", "content": "Well?"},
        ]
        messages = [[*start, {"role": "assistant", "content": text}] for text in (f"It is {n + 1}.", "No idea.")]
        lines.append({"item_id": f"t{n}", "messages": messages, "scores": [1.0, 0.0]})
    Path("rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "rows.jsonl"


def info(folder: str = ".") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(folder) / "dataset_info.json").read_text())
    return found


def stored(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def as_llama_factory_reads(entry: dict[str, Any]) -> list[tuple[list[str], list[str]]]:
    """(prompt, responses) of each row by the rules of its converters: tags, the order of turns, one turn a side."""
    columns, tags = entry["columns"], entry.get("tags", {})
    found = []
    for row in stored(entry["file_name"]):
        assert set(columns.values()) <= set(row)
        if entry["formatting"] == "alpaca":
            sides = ("chosen", "rejected") if entry.get("ranking") else ("response",)
            answers = [row[columns[side]] for side in sides if side in columns]
            assert all(isinstance(text, str) for text in (row[columns["prompt"]], *answers))
            found.append(([row[columns["prompt"]]], answers))
            continue
        role, content = tags.get("role_tag", "from"), tags.get("content_tag", "value")
        names = {side: tags.get(f"{side}_tag", usual) for side, usual in USUAL.items()}
        turns = row[columns["messages"]]
        turns = turns[1:] if turns[0][role] == names["system"] else turns
        for place, turn in enumerate(turns):
            side = ("user", "observation") if place % 2 == 0 else ("assistant", "function")
            assert turn[role] in [names[one] for one in side]
        assert len(turns) % 2 == (1 if entry.get("ranking") else 0)
        texts = [turn[content] for turn in turns]
        if entry.get("ranking"):
            pair = [row[columns[side]] for side in ("chosen", "rejected")]
            assert all(one[role] == names["assistant"] for one in pair)
            found.append((texts, [one[content] for one in pair]))
        else:
            assert not columns.get("kto_tag") or isinstance(row[columns["kto_tag"]], bool)
            found.append((texts[:-1], texts[-1:]))
    return found


USUAL = {
    "user": "human",
    "assistant": "gpt",
    "observation": "observation",
    "function": "function_call",
    "system": "system",
}
LLAMA_FACTORY: list[tuple[str, tuple[str, ...], str, int]] = [
    ("sft", ("sft-gen",), "sft", 4),
    ("sft", ("sft-gen", "--format", "messages"), "sft", 4),
    ("dpo", ("dpo-gen",), "rm", 4),
    ("kto", ("dpo-gen", "--kto"), "kto", 8),
]


@pytest.mark.parametrize(("name", "words", "stage", "count"), LLAMA_FACTORY, ids=lambda value: str(value))
def test_llama_factory(cli: CLI, rows: str, name: str, words: tuple[str, ...], stage: str, count: int) -> None:
    done = cli(*words, rows, "-o", f"{name}.jsonl", "--recipe", "llama-factory")
    assert done.code == 0, done.stderr
    assert "recipe: dataset_info.json" in done.stderr
    read = as_llama_factory_reads(info()[name])
    assert len(read) == count
    assert read[0][1] == (["It is 1.", "No idea."] if stage == "rm" else ["It is 1."])
    assert read[0][0][-1] == "Well?"


@pytest.mark.parametrize(("name", "words", "stage", "count"), LLAMA_FACTORY, ids=lambda value: str(value))
def test_llama_factory_itself(
    cli: CLI, rows: str, name: str, words: tuple[str, ...], stage: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llamafactory")
    monkeypatch.setenv("DISABLE_VERSION_CHECK", "1")
    from llamafactory.data.loader import get_dataset
    from llamafactory.data.template import get_template_and_fix_tokenizer
    from llamafactory.hparams import DataArguments, ModelArguments
    from transformers import Seq2SeqTrainingArguments

    assert cli(*words, rows, "-o", f"{name}.jsonl", "--recipe", "llama-factory").code == 0
    tokenizer = byte_tokenizer()
    data = DataArguments(dataset=name, dataset_dir=".", template="chatml", overwrite_cache=True)
    training = Seq2SeqTrainingArguments(output_dir="out", do_train=True, report_to=[], use_cpu=True)
    template = get_template_and_fix_tokenizer(tokenizer, data)
    read = get_dataset(template, ModelArguments("none"), data, training, stage, tokenizer=tokenizer)["train_dataset"]
    assert len(read) == count
    labels = read[0]["chosen_labels" if stage == "rm" else "labels"]
    learned = tokenizer.decode([ident for ident in labels if ident != -100])
    assert learned.endswith("It is 1.<|im_end|>\n")
    assert "Be exact." not in learned


def byte_tokenizer() -> Any:
    """A tokenizer of single bytes, with a template as ChatML has it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<pad>")
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return tokenizer


def test_what_stands_in_dataset_info_stays(cli: CLI, rows: str) -> None:
    mine = {"alpaca_de": {"hf_hub_url": "me/alpaca", "columns": {"prompt": "Frage"}}, "sft": {"file_name": "old"}}
    Path("dataset_info.json").write_text(json.dumps(mine))
    words = ("sft-gen", rows, "-o", "sft.jsonl", "--validation", "0.5", "--recipe", "llama-factory")
    assert cli(*words, "--recipe", "trl", "--format", "messages").code == 0
    found = info()
    assert found["alpaca_de"] == mine["alpaca_de"]
    assert found["sft"] == mine["sft"]
    assert found["sft_train"]["file_name"] == "sft-train.jsonl"
    assert len(as_llama_factory_reads(found["sft_train"]) + as_llama_factory_reads(found["sft_validation"])) == 4


@pytest.mark.parametrize("text", ["{broken", "[1]", "\x00", "[" * 100_000])
def test_a_dataset_info_that_cannot_be_read_is_left_alone(cli: CLI, rows: str, text: str) -> None:
    Path("dataset_info.json").write_text(text)
    done = cli("sft-gen", rows, "-o", "sft.jsonl", "--recipe", "llama-factory", "--json")
    assert (done.code, "nothing was put in" in done.stderr) == (6, True), done.stderr
    assert Path("dataset_info.json").read_text() == text
    assert done.json["rows"] == 4
    assert len(stored("sft.jsonl")) == 4


def test_weights_and_tools_that_llama_factory_does_not_read(cli: CLI, rows: str) -> None:
    done = cli("sft-gen", rows, "--train-on", "last", "-o", "last.jsonl", "--recipe", "llama-factory")
    assert done.code == 0
    assert "reads no weights" in done.stderr
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
    messages = [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "1"},
        {"role": "assistant", "content": "2"},
    ]
    Path("tools.jsonl").write_text(json.dumps({"messages": messages, "tools": tools}) + "\n")
    done = cli("sft-gen", "tools.jsonl", "-o", "t.jsonl", "--format", "messages", "--recipe", "llama-factory")
    assert (done.code, "--format sharegpt" in done.stderr) == (6, True)
    assert cli("sft-gen", "tools.jsonl", "-o", "s.jsonl", "--recipe", "llama-factory").code == 0
    assert info()["s"]["columns"] == {"messages": "conversations", "tools": "tools"}
    assert as_llama_factory_reads(info()["s"])[0][1] == ["2"]


AXOLOTL: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (("sft-gen",), {"type": "chat_template", "field_messages": "messages"}),
    (("sft-gen", "--format", "sharegpt"), {"type": "chat_template", "field_messages": "conversations"}),
    (("dpo-gen", "--completion", "turn"), {"type": "chat_template.default", "field_messages": "prompt"}),
]


@pytest.mark.parametrize(("words", "keys"), AXOLOTL, ids=lambda value: str(value)[:30])
def test_axolotl(cli: CLI, rows: str, words: tuple[str, ...], keys: dict[str, Any]) -> None:
    done = cli(*words, rows, "-o", "x.jsonl", "--recipe", "axolotl")
    assert done.code == 0, done.stderr
    config = yaml.safe_load(Path("x.axolotl.yaml").read_text())
    (entry,) = config["datasets"]
    assert keys.items() <= entry.items()
    assert entry["ds_type"] == "json"
    assert Path(entry["path"]).is_absolute()
    row = stored(entry["path"])[0]
    mapping = entry.get("message_property_mappings", {"role": "role", "content": "content"})
    assert set(mapping.values()) <= set(row[entry["field_messages"]][0])
    assert config.get("rl") == ("dpo" if words[0] == "dpo-gen" else None)
    if words[0] == "dpo-gen":
        assert row["chosen"][-1]["content"] == "It is 1."  # its strategy takes the last message of a side


@pytest.mark.parametrize(("words", "keys"), AXOLOTL, ids=lambda value: str(value)[:30])
def test_axolotl_itself(cli: CLI, rows: str, words: tuple[str, ...], keys: dict[str, Any]) -> None:
    pytest.importorskip("axolotl")
    from axolotl.prompt_strategies import dpo
    from axolotl.prompt_strategies.chat_template import load
    from axolotl.utils.dict import DictDefault
    from axolotl.utils.schemas.config import AxolotlInputConfig

    assert cli(*words, rows, "-o", "x.jsonl", "--recipe", "axolotl").code == 0
    base = {"base_model": "x", "micro_batch_size": 1, "gradient_accumulation_steps": 1, "learning_rate": 1e-4}
    given = yaml.safe_load(Path("x.axolotl.yaml").read_text())
    model = AxolotlInputConfig.model_validate({**given, **base, "chat_template": "tokenizer_default"})
    config = DictDefault(model.model_dump(exclude_none=True))
    row, tokenizer = stored(config.datasets[0].path)[0], byte_tokenizer()
    if config.rl:
        transform = dpo.load(config.datasets[0].type, config, dataset_idx=0)
        made = (transform[0] if isinstance(transform, tuple) else transform)(row, tokenizer=tokenizer)
        assert made["prompt"].endswith("Well?<|im_end|>\n<|im_start|>assistant\n")
        assert (made["chosen"], made["rejected"]) == ("It is 1.<|im_end|>", "No idea.<|im_end|>")
        return
    labels = load(tokenizer, config, ds_cfg=config.datasets[0]).tokenize_prompt(row)["labels"]
    learned = tokenizer.decode([ident for ident in labels if ident != -100])
    assert learned == "Let me see.<|im_end|>It is 1.<|im_end|>"


def test_verl(cli: CLI, rows: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    done = cli("prompt-gen", rows, "-o", "p.parquet", "--data-source", "openai/gsm8k", "--recipe", "verl", "--json")
    assert done.code == 0, done.stderr
    assert done.json["rows"] == 4
    keys = yaml.safe_load(Path("p.verl.yaml").read_text())["data"]
    (row, *_) = parquet.read_table(keys["train_files"][0]).to_pylist()
    assert row[keys["reward_fn_key"]] == "openai/gsm8k"
    assert [message["role"] for message in row[keys["prompt_key"]]] == ["system", "user"]
    assert set(row["reward_model"]) == {"style", "ground_truth"}
    assert isinstance(row["reward_model"]["ground_truth"], str)
    assert row["extra_info"]["index"] == 0
    assert row["extra_info"]["mean_score"] == 0.5


def test_tasks_of_an_environment_for_verl_and_trl(cli: CLI, sums: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    done = cli("env", "tasks", sums, "--count", "3", "--split", "test", "-o", "t.parquet", "--recipe", "verl")
    assert done.code == 0, done.stderr
    made = parquet.read_table("t.parquet").to_pylist()
    assert [row["reward_model"]["ground_truth"] for row in made] == ["0", "2", "4"]
    assert {row["extra_info"]["split"] for row in made} == {"test"}
    assert made[1]["prompt"] == [{"role": "user", "content": "1+1"}]
    assert cli("env", "tasks", sums, "--format", "prompt-answer", "--limit", "2", "-o", "t.jsonl").code == 0
    assert [row["answer"] for row in stored("t.jsonl")] == ["0", "2"]
    assert cli("env", "tasks", sums, "--split", "none", "-o", "x.jsonl").code == 2
    assert not Path("x.jsonl").exists()


def test_verl_itself(cli: CLI, rows: str) -> None:
    pytest.importorskip("verl")
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    assert cli("prompt-gen", rows, "-o", "p.parquet", "--recipe", "verl").code == 0
    config = OmegaConf.create(yaml.safe_load(Path("p.verl.yaml").read_text())["data"] | {"cache_dir": "cache"})
    read = RLHFDataset(config.train_files, byte_tokenizer(), config)
    assert len(read) == 4
    assert read[0]["raw_prompt"][-1]["content"] == "0 + 1?"
    assert len(collate_fn([read[0], read[1]])["data_source"]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sft-gen", "-o", "x.jsonl", "--recipe", "lamafactory"), "is not one of"),
        (("sft-gen", "-o", "x.jsonl", "--recipe", "llama-factory", "--format", "prompt-completion"), "does not read"),
        (("sft-gen", "-o", "x.jsonl.gz", "--recipe", "llama-factory"), "does not read x.jsonl.gz"),
        (("sft-gen", "-o", "x.jsonl", "--recipe", "llama-factory", "--shard-size", "2"), "not shards"),
        (("sft-gen", "-o", "-", "--recipe", "trl"), "need a file"),
        (("sft-gen", "-o", "x.jsonl", "--recipe", "verl"), "does not read x.jsonl"),
        (("dpo-gen", "-o", "x.jsonl", "--recipe", "llama-factory", "--format", "messages"), "does not read"),
        (("dpo-gen", "-o", "x.jsonl", "--recipe", "verl"), "does not read"),
        (("dpo-gen", "-o", "x.jsonl", "--kto", "--recipe", "axolotl"), "does not read"),
        (("dpo-gen", "-o", "x.jsonl", "--text", "--format", "sharegpt"), "leave one of them out"),
        (("prompt-gen", "-o", "x.jsonl", "--recipe", "axolotl"), "does not read"),
        (("prompt-gen", "-o", "x.jsonl", "--format", "alpaca"), "is not one of"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, tuple) else "",
)
def test_refusals_come_before_the_work(cli: CLI, rows: str, words: tuple[str, ...], said: str) -> None:
    done = cli(words[0], rows, *words[1:])
    assert (done.code, said in done.stderr) == (2, True), done.stderr
    assert "hint:" in done.stderr or "did you mean" in done.stderr or said == "is not one of"
    assert [path.name for path in Path().iterdir()] == ["rows.jsonl"]


def test_a_failed_conversion_writes_no_recipe(cli: CLI, rows: str) -> None:
    done = cli("sft-gen", rows, "--above", "5", "-o", "x.jsonl", "--recipe", "llama-factory")
    assert done.code == 1
    assert [path.name for path in Path().iterdir()] == ["rows.jsonl"]


def test_what_stands_beside_the_rows_is_not_replaced_unasked(cli: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    row = {"prompt": "1+1?", "completion": "2", "task_id": "t", "reward": 1.0}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    others = {"hand": {"file_name": "by-hand.json"}}
    Path("dataset_info.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(others).encode())
    Path("hand.axolotl.yaml").write_text("datasets: [mine]\n")
    words = ("sft-gen", "rows.jsonl", "--recipe")
    for recipe, name in (("llama-factory", "dataset_info.json"), ("axolotl", "hand.axolotl.yaml")):
        before = Path(name).read_bytes()
        done = cli(*words, recipe, "-o", "hand.jsonl")
        assert (done.code, name in done.stderr) == (6, True), done.stderr
        assert Path(name).read_bytes() == before
        assert not Path("hand.jsonl").exists()
    for _ in range(2):
        assert cli(*words, "llama-factory", "-o", "rows2.jsonl").code == 0
        assert {**others, "rows2": 0}.keys() == json.loads(Path("dataset_info.json").read_bytes()).keys()
        Path("rows2.jsonl").unlink()  # an entry or a file of ours is made again
        assert cli(*words, "axolotl", "-o", "rows3.jsonl").code == 0
        Path("rows3.jsonl").unlink()
    assert cli(*words, "axolotl", "-o", "hand.jsonl", "--overwrite").code == 0
    assert "mine" not in Path("hand.axolotl.yaml").read_text()
