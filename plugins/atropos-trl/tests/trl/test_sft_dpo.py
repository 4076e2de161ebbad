"""SFT and DPO: what is trained, what is refused, and losses that fall."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import case_tables
import pytest
from atropos_trl.preferences import preferences
from trl_support import make_plan, metrics, run

from atropos_cli.datasets.demonstrations import IGNORED, demonstrations, ids_and_labels
from atropos_cli.sdk import DataError

pytest.importorskip("torch")
pytest.importorskip("trl")

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FORGETFUL = (
    "{% for m in messages %}{% if loop.last or m['role'] == 'user' %}"
    "{{ m['role'] + m['content'] }}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Bytes, with ChatML's marks."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    made.chat_template = CHATML
    return made


def trained(tokenizer: Any, row: dict[str, Any]) -> str:
    ids, labels = ids_and_labels(row, tokenizer)
    assert len(ids) == len(labels)
    assert all(label in (IGNORED, token) for token, label in zip(ids, labels, strict=True))
    return str(tokenizer.decode([label for label in labels if label != IGNORED]))


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (
            {
                "messages": [
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": "two?"},
                    {"role": "assistant", "content": "2"},
                    {"role": "user", "content": "three?"},
                    {"role": "assistant", "content": "3 é"},
                ]
            },
            "2<|im_end|>3 é<|im_end|>",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": "a"},
                    {"role": "assistant", "content": "b", "weight": 0.0},
                    {"role": "user", "content": "c"},
                    {"role": "assistant", "content": "d", "weight": 1},
                ]
            },
            "d<|im_end|>",
        ),
        (
            {
                "prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "old"}],
                "completion": [{"role": "user", "content": "r"}, {"role": "assistant", "content": "new"}],
            },
            "new<|im_end|>",
        ),
        ({"prompt": "1+1=", "completion": "2"}, "2<|im_end|>"),
        ({"text": "all of it"}, "all of it<|im_end|>"),
        ({"input_ids": [70, 71, 72], "labels": [IGNORED, 71, 72]}, None),
    ],
)
def test_exactly_the_assistants_tokens(tokenizer: Any, row: dict[str, Any], text: str | None) -> None:
    found = trained(tokenizer, row)
    assert found == (text if text is not None else tokenizer.decode([71, 72]))


def test_rows_without_trained_tokens(tokenizer: Any) -> None:
    masked = {"input_ids": [1, 2], "labels": [IGNORED, IGNORED]}
    with pytest.raises(DataError, match="none of 2 rows has a token to train on: 2 are masked"):
        demonstrations([masked, masked], tokenizer, max_length=None)
    found = demonstrations([masked, {"text": "abc"}, {"text": "a" * 99}], tokenizer, max_length=50)
    assert (len(found.rows), found.untrained, found.too_long, found.open_ended) == (1, 1, 1, 0)


ASKED = {"role": "user", "content": "two?"}
CUT = {"role": "assistant", "content": "it is tw", "finish_reason": "length"}


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"messages": [ASKED, CUT]}, "it is tw"),
        ({"messages": [ASKED, {**CUT, "finish_reason": "MAX_TOKENS"}]}, "it is tw"),
        ({"messages": [ASKED, {"role": "assistant", "content": "it is tw"}], "finish_reason": "safety"}, "it is tw"),
        ({"messages": [ASKED, {"role": "assistant", "content": "2"}], "finish_reason": "end_turn"}, "2<|im_end|>"),
        ({"messages": [ASKED, CUT, ASKED, {"role": "assistant", "content": "2"}]}, "it is tw2<|im_end|>"),
        ({"messages": [ASKED, {**CUT, "weight": 0.0}, ASKED, {"role": "assistant", "content": "2"}]}, "2<|im_end|>"),
        ({"prompt": "two?", "completion": "it is tw", "finish_reason": "length"}, "it is tw"),
        ({"prompt": [ASKED], "completion": [CUT]}, "it is tw"),
        ({"prompt": [ASKED], "completion": [{"role": "assistant", "content": "2"}], "stop_reason": "oddly"}, "2"),
        ({"text": "once upon", "finish_reason": "length"}, "once upon"),
    ],
)
def test_replies_that_were_cut_off_are_taught_no_end_token(tokenizer: Any, row: dict[str, Any], text: str) -> None:
    assert trained(tokenizer, row) == text


def test_pairs_with_a_side_that_was_cut_off_are_left_out(tokenizer: Any) -> None:
    whole = {"role": "assistant", "content": "2"}
    pairs = [
        {"prompt": [ASKED], "chosen": [whole], "rejected": [CUT]},
        {"prompt": [ASKED], "chosen": [{**CUT, "finish_reason": "content_filter"}], "rejected": [whole]},
        {"prompt": [ASKED], "chosen": [whole], "rejected": [{"role": "assistant", "content": "3"}]},
    ]
    found = preferences(pairs, tokenizer, max_length=None)
    assert (found.cut, len(found.rows)) == (2, 1)


@pytest.mark.parametrize(
    "row",
    [
        {"input_ids": [1, 2], "labels": [1, 2]},
        {"input_ids": [4, 5, 6], "labels": [4, -100, 6]},
        {"input_ids": [4, 5], "completion_mask": [1, 1]},
    ],
)
def test_rows_whose_first_token_is_trained_are_refused(tokenizer: Any, row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="its first token is trained"):
        demonstrations([row], tokenizer, max_length=None, vocabulary=300)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"question": "x"}, r"row 1 cannot be trained on: it has none of the known keys \(its keys: question\)"),
        ({"input_ids": [1, 2], "labels": [1]}, "2 input_ids but 1 labels"),
        ({"input_ids": [1, 999], "labels": [1, 999]}, "input_ids has 999, the model's tokens are 0 to 299"),
        ({"input_ids": [1, 2], "labels": [1, -5]}, "labels hold what is neither a token id nor -100: -5"),
        ({"completion": "ab"}, r"a completion, but no prompt \(its keys: completion\)"),
        (
            {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "weight": 0.5}]},
            "a message has the weight 0.5",
        ),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "its first turn is the assistant's"),
    ],
)
def test_rows_that_cannot_be_read(tokenizer: Any, row: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        demonstrations([row], tokenizer, max_length=None, vocabulary=300)
    assert "row 1" in caught.value.message
    assert "rows need messages" in str(caught.value.hint)


def test_data_without_a_row(tokenizer: Any) -> None:
    with pytest.raises(DataError, match="no row to train on") as caught:
        demonstrations([], tokenizer, max_length=None)
    assert "messages, prompt and completion" in str(caught.value.hint)
    with pytest.raises(DataError, match="no pair to train on"):
        preferences([], tokenizer, max_length=None)


def test_pairs_that_cannot_be_read(tokenizer: Any) -> None:
    import copy

    user, reply = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    row = {"prompt": [user], "chosen": [reply], "rejected": [{"role": "assistant", "content": None}]}
    with pytest.raises(DataError, match=r"row 1: 'rejected' is neither .* with a role and content"):
        preferences([row], tokenizer, max_length=None)
    bare = copy.deepcopy(tokenizer)
    bare.chat_template = None
    good = {**row, "rejected": [{**reply, "content": "b"}]}
    with pytest.raises(DataError, match="row 1 has lists of messages, but the model has no chat template"):
        preferences([good], bare, max_length=None)
    bare.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(DataError, match=r"row 1 cannot be trained on: .*roles must alternate"):
        preferences([good], bare, max_length=None)


def test_a_template_that_rewrites_turns(tokenizer: Any) -> None:
    import copy

    other = copy.deepcopy(tokenizer)
    other.chat_template = FORGETFUL
    row = {
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
            {"role": "assistant", "content": "d"},
        ]
    }
    with pytest.raises(DataError, match="rewrites earlier turns"):
        demonstrations([row], other, max_length=None)


def test_pairs(tokenizer: Any) -> None:
    good = {"prompt": "q", "chosen": "a", "rejected": "b", "margin": 1.0}
    found = preferences([good, {**good, "rejected": "a"}, {**good, "chosen": "c" * 99}], tokenizer, max_length=50)
    assert (len(found.rows), found.identical, found.too_long) == (1, 1, 1)
    assert found.rows[0] == {"prompt": "q", "chosen": "a", "rejected": "b"}
    with pytest.raises(DataError, match="mixes texts and lists"):
        preferences([{**good, "prompt": [{"role": "user", "content": "q"}]}], tokenizer, max_length=None)
    with pytest.raises(DataError, match="row 1 has no 'rejected'"):
        preferences([{"prompt": "q", "chosen": "a"}], tokenizer, max_length=None)
    turn = {"from": "gpt", "value": "a"}
    with pytest.raises(DataError, match="row 1: 'chosen' is neither a text nor a list of messages"):
        preferences([{"prompt": "q", "chosen": turn, "rejected": turn}], tokenizer, max_length=None)
    with pytest.raises(DataError, match="row 1 has no 'prompt'"):
        preferences([{"chosen": "a", "rejected": "b"}], tokenizer, max_length=None)


CALLING = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize("arguments", [{"city": "Oslo"}, {"n": 1}, {"city": None}])
def test_pairs_with_tool_calls_keep_the_arguments_of_each_call(tokenizer: Any, arguments: dict[str, Any]) -> None:
    import copy

    calling = copy.deepcopy(tokenizer)
    calling.chat_template = CALLING
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    other = {"type": "function", "function": {"name": "g", "arguments": {"other": 1}}}
    row = {
        "prompt": [{"role": "user", "content": "q"}],
        "chosen": [{"role": "assistant", "content": None, "tool_calls": [call]}],
        "rejected": [{"role": "assistant", "content": None, "tool_calls": [other]}],
    }
    (found,) = preferences([row], calling, max_length=None).rows
    assert found == {
        "prompt": "<user>q<|im_end|>\n<assistant>",
        "chosen": json.dumps(arguments) + "<|im_end|>",
        "rejected": '{"other": 1}<|im_end|>',
    }


def test_sft_lowers_its_loss(small: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(
        "".join(
            json.dumps({"prompt": a + b, "completion": f"{n % 10}{n % 10}"}) + "\n"
            for n, (a, b) in enumerate(["ab", "cd"] * 20)
        )
    )
    plan = make_plan(
        small,
        method="sft",
        data=(str(data),),
        prompts_per_step=8,
        steps=20,
        save_every=100,
        config={"learning_rate": 1e-2},
    )
    result = run(plan, tmp_path / "run")
    rows = metrics(tmp_path / "run")
    assert rows[-1]["loss"] < 0.8 * rows[0]["loss"]
    assert {"grad_norm", "learning_rate", "step_time"} <= rows[0].keys()
    assert (Path(result.output) / "tokenizer.json").is_file()


def test_dpo_lowers_its_loss(small: Path, tmp_path: Path) -> None:
    data = tmp_path / "pairs.jsonl"
    data.write_text(
        "".join(
            json.dumps({"prompt": letter, "chosen": "2468", "rejected": "1357"}) + "\n" for letter in "abcdefgh" * 4
        )
    )
    plan = make_plan(
        small,
        method="dpo",
        data=(str(data),),
        prompts_per_step=8,
        steps=12,
        save_every=100,
        config={"learning_rate": 5e-3},
    )
    run(plan, tmp_path / "run")
    rows = metrics(tmp_path / "run")
    assert rows[0]["loss"] == pytest.approx(0.6931, abs=1e-3)
    assert rows[-1]["loss"] < 0.5


def test_fewer_rows_than_a_step(small: Path, tmp_path: Path) -> None:
    """TRL would end at once and call it a success."""
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({"text": "ab"}) + "\n")
    plan = make_plan(small, method="sft", data=(str(data),), prompts_per_step=8)
    with pytest.raises(DataError, match="1 rows are fewer than one step's 8"):
        run(plan, tmp_path / "run")


REAL = [
    ("sft", "sharegpt.json", "sharegpt_fastchat/dummy_conversation.json", {"learning_rate": 3e-4, "lora_r": 8}),
    ("dpo", "dpo_sharegpt.json", "dpo_pairs/dpo_en_demo_first150.json", {"learning_rate": 5e-4, "lora_r": 8}),
]


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize(("method", "own", "real", "config"), REAL, ids=["sft", "dpo"])
def test_real_data_and_the_small_model(
    tmp_path: Path, method: str, own: str, real: str, config: dict[str, Any]
) -> None:
    """The 135M model on the shortest 2 rows of real data: the third pass over them has lower losses than the first.

    Passes are compared, not single steps: the rows of two steps differ more than three passes teach.
    """
    pytest.importorskip("gguf")
    files = case_tables.data_files()
    path = files.get(real, files[own])
    rows = sorted(json.loads(path.read_text()), key=lambda row: len(json.dumps(row)))[:2]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = make_plan(
        "smollm2",
        method=method,
        data=(str(data),),
        prompts_per_step=1,
        steps=6,
        save_every=100,
        config={**config, "lr_scheduler_type": "constant"},
    )
    run(plan, tmp_path / "run")
    values = [row["loss"] for row in metrics(tmp_path / "run")]
    assert len(values) == 6
    assert sum(values[-2:]) < 0.97 * sum(values[:2]), values
    if method == "dpo":
        assert values[0] == pytest.approx(0.6931, abs=1e-3)
