"""Replies that were cut off, and stored tokens without a prompt, on their way into training rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "datasets" / "convert"))

from convert_support import CHATML, TEMPLATES, make_tokenizer, trained_text

from atropos_cli.datasets.convert.tokenizers import load_tokenizer

ASKED = {"role": "user", "content": "question"}


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def write(*rows: Any) -> None:
    Path("r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows() -> list[Any]:
    return [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("chatml")
    tokenizer = make_tokenizer(CHATML)
    tokenizer.chat_template = (TEMPLATES / "chatml.jinja").read_text()
    tokenizer.save_pretrained(str(folder))
    return str(folder)


CONVERSATIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"messages": [ASKED, says("it rains in")], "finish_reason": "length"}, ["it rains in"]),
    ({"messages": [ASKED, says("it rains in", finish_reason="MAX_TOKENS")]}, ["it rains in"]),
    ({"messages": [ASKED, says("it rains in", stop_reason="odd")]}, ["it rains in"]),
    ({"messages": [ASKED, says("it rains in")], "finishReason": "SAFETY"}, ["it rains in"]),
    ({"messages": [ASKED, says("it rains in")], "truncated": True}, ["it rains in"]),
    ({"messages": [ASKED, says("it rains.")], "finish_reason": "end_turn"}, ["it rains.<|im_end|>"]),
    (
        {"messages": [ASKED, says("it rains in", finish_reason="length"), ASKED, says("Oslo.", finish_reason="stop")]},
        ["it rains in", "Oslo.<|im_end|>"],
    ),
    (
        {"messages": [ASKED, says("it rains."), ASKED, says("Oslo an")], "finish_reason": "model_length"},
        ["it rains.<|im_end|>", "Oslo an"],
    ),
]


def test_tokens_of_cut_replies_end_without_an_end_mark(cli: Any, chatml: str) -> None:
    write(*(row for row, _ in CONVERSATIONS))
    options = ("--format", "tokens", "--tokenizer", chatml, "--keep-truncated")
    assert cli("sft-gen", "r.jsonl", "-o", "o.jsonl", *options).code == 0
    tokens = load_tokenizer(chatml)
    made = [trained_text(tokens, row["input_ids"], [label != -100 for label in row["labels"]]) for row in rows()]
    assert made == [texts for _, texts in CONVERSATIONS]


@pytest.mark.parametrize("form", ["messages", "prompt-completion", "sharegpt"])
def test_rows_of_messages_say_which_reply_was_cut(cli: Any, form: str) -> None:
    write(*(row for row, _ in CONVERSATIONS[:6]))
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--format", form, "--keep-truncated")
    assert "5 rows hold a reply that was cut off" in got.stderr
    key = {"messages": "messages", "prompt-completion": "completion", "sharegpt": "conversations"}[form]
    reasons = [row[key][-1].get("finish_reason") for row in rows()]
    assert reasons == ["length", "length", "odd", "content_filter", "length", None]


def test_rows_of_text_with_a_cut_reply_are_refused(cli: Any, chatml: str) -> None:
    write(*(row for row, _ in CONVERSATIONS))
    for options in (("--format", "text"), ("--format", "prompt-completion", "--text")):
        got = cli(
            "sft-gen", "r.jsonl", "-o", "o.jsonl", *options, "--tokenizer", chatml, "--keep-truncated",
            "--overwrite", "--json",
        )  # fmt: skip
        assert got.json["left_out"] == {"cut_end_mark": 7}
        assert len(rows()) == 1
    pair = {
        "messages": [[ASKED, says("good")], [ASKED, says("ba")]],
        "scores": [1, 0],
        "finish_reasons": ["stop", "length"],
    }
    write(pair)
    assert cli("dpo-gen", "r.jsonl", "-o", "d.jsonl", "--text", "--keep-truncated").code == 1


def stored(mask: Any, **more: Any) -> dict[str, Any]:
    """A group of one rollout whose reply carries tokens."""
    tokens = {"ids": [5, 6, 7, 8], "mask": mask}
    rollout = {"id": "a/0", "task_id": "a", "messages": [ASKED, says("yes", tokens=tokens)], "reward": 1.0, **more}
    return {
        "group_id": "a",
        "last": True,
        "env": "e",
        "task": {"id": "a", "prompt": [ASKED]},
        "rollouts": [rollout],
        "model": "m",
    }


def test_stored_tokens_whose_first_is_trained_are_refused(cli: Any, chatml: str) -> None:
    parallel = {"tokens": [[1, 2]], "masks": [[1, 2]], "messages": [[ASKED, says("x")]], "scores": [1]}
    write(stored(True), stored([True, False, True, True]), parallel, stored([False, False, True, True]))
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--format", "tokens", "--json")
    assert got.json["left_out"] == {"no_prompt_tokens": 3}
    assert [row["labels"] for row in rows()] == [[-100, -100, 7, 8]]
    write(stored(True))
    got = cli("sft-gen", "r.jsonl", "-o", "n.jsonl", "--format", "tokens")
    assert got.code == 1
    assert "--retokenize" in got.stderr
    again = ("--format", "tokens", "--retokenize", "--tokenizer", chatml)
    assert cli("sft-gen", "r.jsonl", "-o", "n.jsonl", *again).code == 0
    Path("bad.jsonl").write_text('{"input_ids": [1, 2], "labels": [1, 2]}\n')
    assert "first_token_trained" in cli("sft-gen", "bad.jsonl", "--check", "--tokenizer", chatml, "--json").stdout
