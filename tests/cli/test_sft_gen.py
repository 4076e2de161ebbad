"""`atropos sft-gen` on the command line: field cases, formats, policies, limits, outputs."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "datasets" / "convert"))

from convert_support import CHATML, LLAMA, TEMPLATES, make_tokenizer, trained_text

from atropos_cli.datasets.convert.tokenizers import Tokens, load_tokenizer

PLAIN_CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def lines(path: str | Path) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def write(name: str, *rows: Any) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def group(ident: str, scores: list[Any], **more: Any) -> dict[str, Any]:
    chats = [[user(f"question {ident}"), says(f"reply {i}")] for i in range(len(scores))]
    return {"item_id": ident, "messages": chats, "scores": scores, **more}


@pytest.fixture
def case(field_cases: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    """Write the files of a field case into the working directory."""

    def files(ident: str) -> dict[str, Any]:
        found: dict[str, Any] = field_cases[ident]
        for name, text in found["input"].get("files", {}).items():
            Path(name).write_bytes(text.encode())
        for name, text in found["input"].get("files_base64", {}).items():
            Path(name).write_bytes(base64.b64decode(text))
        return found

    return files


@pytest.fixture(scope="session")
def chatml_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tokenizer with ChatML's tokens, as a folder; its pad token is its end token."""
    folder = tmp_path_factory.mktemp("chatml")
    tokenizer = make_tokenizer(CHATML)
    tokenizer.chat_template = (TEMPLATES / "chatml.jinja").read_text()
    tokenizer.save_pretrained(str(folder))
    return str(folder)


@pytest.fixture(scope="session")
def chatml(chatml_folder: str) -> Tokens:
    return load_tokenizer(chatml_folder)


def trained(tokens: Tokens, row: dict[str, Any]) -> list[str]:
    mask = [label != -100 for label in row["labels"]]
    assert [ident for ident, on in zip(row["input_ids"], mask, strict=True) if on] == [
        label for label in row["labels"] if label != -100
    ]
    return trained_text(tokens, row["input_ids"], mask)


# Reading and rollouts: A05 to A29, B11, B15 --------------------------------------------------------------------


def test_a05_a_score_that_is_no_number_is_never_taken(cli: Any, case: Any) -> None:
    case("A05")
    assert cli("sft-gen", "r.jsonl", "-o", "o.jsonl").code == 0
    [row] = lines("o.jsonl")
    assert row["messages"][-1]["content"] == "second"
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--overwrite", "--select", "all", "--json")
    assert got.json["left_out"] == {"score_not_finite": 2}
    assert "r.jsonl:1: the score at position 0, 2 is not finite" in got.stderr


def test_a07_side_fields_of_every_type_pass_through(cli: Any) -> None:
    rows = [{"item_id": i, "messages": [[user("q"), says(str(i))]], "scores": [1], "info": None} for i in range(12000)]
    rows += [{**rows[0], "info": "late text"}, {**rows[0], "info": {"k": [1, 2]}}]
    write("r.jsonl", *rows)
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--field", "info")
    assert got.code == 0, got.stderr
    out = lines("o.jsonl")
    assert len(out) == 12002
    assert [row["info"] for row in out[-3:]] == [None, "late text", {"k": [1, 2]}]


def test_a09_content_of_every_kind(cli: Any, case: Any) -> None:
    case("A09")
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--json")
    first, second = lines("o.jsonl")
    assert first["messages"] == [user("hi"), says("hello")]
    assert second["messages"][1]["content"] is None
    assert second["messages"][1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {}}
    assert second["messages"][2] == {"role": "tool", "content": "7", "tool_call_id": "c1"}
    assert got.json["left_out"] == {"empty": 1}
    assert '"None' not in Path("o.jsonl").read_text()


def test_a10_lone_surrogates_do_not_stop_anything(cli: Any, case: Any) -> None:
    case("A10")
    assert cli("sft-gen", "r.jsonl", "-o", "o.jsonl").code == 0
    replies = [row["messages"][-1]["content"] for row in lines("o.jsonl")]
    assert replies == ["art \ufffd end", "ok \U0001f600"]


def test_a15_a_line_of_many_megabytes(cli: Any) -> None:
    big = {"messages": [[user("q"), says("x" * 12_000_000)]], "scores": [1], "tokens": [list(range(300_000))]}
    small = {"messages": [[user("q"), says("y")]], "scores": [1], "tokens": [[1, 2]]}
    write("r.jsonl", small, big, small)
    assert cli("sft-gen", "r.jsonl", "-o", "o.jsonl").code == 0
    assert [len(row["messages"][1]["content"]) for row in lines("o.jsonl")] == [1, 12_000_000, 1]


@pytest.mark.parametrize("form", ["messages", "prompt-completion", "sharegpt", "text"])
def test_a29_text_that_looks_like_structure_stays_text(cli: Any, case: Any, form: str) -> None:
    case("A29")
    Path("t.jinja").write_text(PLAIN_CHATML)
    extra = ["--chat-template", "t.jinja"] if form == "text" else []
    assert cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--format", form, *extra).code == 0
    [row] = lines("o.jsonl")
    asked, answered = '{"role":"system","content":"x"}', "a: string, b: timestamp[s]"
    if form == "messages":
        assert row["messages"] == [user(asked), says(answered)]
    elif form == "prompt-completion":
        assert (row["prompt"], row["completion"]) == ([user(asked)], [says(answered)])
    elif form == "sharegpt":
        assert [turn["value"] for turn in row["conversations"]] == [asked, answered]
    else:
        assert row["text"] == (f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n{answered}<|im_end|>\n")


def test_b11_rollouts_that_were_cut_off_are_left_out_and_counted(cli: Any) -> None:
    rows = [
        {"messages": [user("q"), says("whole")], "finish_reason": "stop"},
        {"messages": [user("q"), says("cut", finish_reason="length")]},
        {"messages": [user("q"), says("withheld")], "finish_reason": "content_filter"},
    ]
    write("r.jsonl", *rows)
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--json")
    assert [row["messages"][-1]["content"] for row in lines("o.jsonl")] == ["whole"]
    assert got.json["left_out"] == {"truncated:length": 1, "truncated:content_filter": 1}
    cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--overwrite", "--keep-truncated")
    assert len(lines("o.jsonl")) == 3
    assert [row["messages"][-1].get("finish_reason") for row in lines("o.jsonl")] == [None, "length", "content_filter"]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("auto", says("<think>\nplan\n</think>\n\nFour")),
        ("tags", says("<think>\nplan\n</think>\n\nFour")),
        ("field", says("Four", reasoning_content="plan")),
        ("drop", says("Four")),
    ],
)
def test_b15_thinking_takes_one_form(cli: Any, case: Any, form: str, expected: dict[str, Any]) -> None:
    case("B15")
    assert cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--thinking", form).code == 0
    assert [row["messages"][1] for row in lines("o.jsonl")] == [expected] * 3


# Templates and masks: C01 to C21 -------------------------------------------------------------------------------


def test_c01_a_template_without_marks(cli: Any, case: Any, chatml_folder: str, chatml: Tokens) -> None:
    case("C01")
    options = ("--format", "tokens", "--tokenizer", chatml_folder, "--chat-template", "template.jinja")
    assert cli("sft-gen", "sft.jsonl", "-o", "o.jsonl", *options).code == 0
    [row] = lines("o.jsonl")
    assert trained(chatml, row) == ["Blue.<|im_end|>"]
    # Nothing to train on is never accepted silently.
    write("none.jsonl", {"messages": [user("q"), says("a", weight=0)]})
    got = cli("sft-gen", "none.jsonl", "-o", "n.jsonl", *options)
    assert got.code == 1
    assert "most were left out as weight_zero (1)" in got.stderr
    assert not Path("n.jsonl").exists()


def test_c03_the_header_of_the_reply_is_not_trained(cli: Any, case: Any, chatml_folder: str, chatml: Tokens) -> None:
    case("C03")
    options = ("--tokenizer", chatml_folder, "--chat-template", "template.jinja")
    assert cli("sft-gen", "pc.jsonl", "-o", "o.jsonl", "--format", "tokens", *options).code == 0
    [row] = lines("o.jsonl")
    first = next(i for i, label in enumerate(row["labels"]) if label != -100)
    assert chatml.decode(row["input_ids"][:first]).endswith("<|im_start|>assistant\n")
    assert trained(chatml, row) == ["Hello!<|im_end|>"]
    text = ("--format", "prompt-completion", "--text")
    assert cli("sft-gen", "pc.jsonl", "-o", "t.jsonl", *text, *options).code == 0
    [row] = lines("t.jsonl")
    assert row["prompt"] == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert row["completion"] == "Hello!<|im_end|>"


def test_c03_a_prompt_that_is_no_prefix_is_reported(cli: Any, case: Any, chatml_folder: str) -> None:
    case("C03")
    Path("t.jinja").write_text(PLAIN_CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif"))
    options = ("--format", "tokens", "--tokenizer", chatml_folder, "--chat-template", "t.jinja")
    got = cli("sft-gen", "pc.jsonl", "-o", "o.jsonl", *options)
    assert got.code == 1
    assert "pc.jsonl:1: the prompt of the reply, rendered alone, is not how the conversation begins" in got.stderr


def test_c04_thinking_that_the_template_strips_is_noticed(
    cli: Any, case: Any, chatml_folder: str, chatml: Tokens
) -> None:
    case("C04")
    options = ("--format", "tokens", "--tokenizer", chatml_folder, "--chat-template", "template.jinja")
    got = cli("sft-gen", "sft.jsonl", "-o", "o.jsonl", *options, "--thinking", "keep")
    assert "thinking is left out of 1 of 1 rows" in got.stderr
    [row] = lines("o.jsonl")
    assert trained(chatml, row) == ["2<|im_end|>", "<think>add again</think>4<|im_end|>"]
    assert "add<" not in chatml.decode(row["input_ids"])
    # The other choice: one row of each turn, each with its thinking.
    got = cli("sft-gen", "sft.jsonl", "-o", "o.jsonl", "--overwrite", *options, "--thinking", "keep", "--split-turns")
    first, second = lines("o.jsonl")
    assert trained(chatml, first) == ["<think>add</think>2<|im_end|>"]
    assert trained(chatml, second) == ["<think>add again</think>4<|im_end|>"]


def test_c06_thinking_in_a_field_is_rendered_or_reported(
    cli: Any, case: Any, chatml_folder: str, chatml: Tokens
) -> None:
    case("C06")
    options = ("--format", "tokens", "--tokenizer", chatml_folder)
    qwen3 = ("--chat-template", str(TEMPLATES / "qwen3.jinja"))
    got = cli("sft-gen", "sft.jsonl", "-o", "q.jsonl", *options, *qwen3)
    assert (got.code, "thinking" in got.stderr) == (0, False)
    assert trained(chatml, lines("q.jsonl")[0]) == ["<think>\nadd\n</think>\n\n4<|im_end|>"]
    assert json.loads(Path("q.jsonl.card.json").read_text())["counts"]["thinking"] == "field"
    # A template that does not know the field: tags by default, or dropped and said so.
    cli("sft-gen", "sft.jsonl", "-o", "a.jsonl", *options)
    assert trained(chatml, lines("a.jsonl")[0]) == ["<think>\nadd\n</think>\n\n4<|im_end|>"]
    for form in ("field", "drop"):
        got = cli("sft-gen", "sft.jsonl", "-o", "d.jsonl", "--overwrite", *options, "--thinking", form)
        assert trained(chatml, lines("d.jsonl")[0]) == ["4<|im_end|>"]
        assert "thinking is left out of 1 of 1 rows" in got.stderr
        assert json.loads(Path("d.jsonl.card.json").read_text())["counts"]["thinking"] == form


def test_c07_a_template_that_refuses_the_system_role(cli: Any, case: Any, chatml_folder: str, chatml: Tokens) -> None:
    case("C07")
    options = ("--format", "tokens", "--tokenizer", chatml_folder, "--chat-template", "template.jinja")
    got = cli("sft-gen", "sft.jsonl", "-o", "o.jsonl", *options)
    assert got.code == 1
    assert "sft.jsonl:1: the chat template refuses: System role not supported" in got.stderr
    assert "--system fold" in got.stderr
    assert cli("sft-gen", "sft.jsonl", "-o", "o.jsonl", *options, "--system", "fold").code == 0
    [row] = lines("o.jsonl")
    assert chatml.decode(row["input_ids"]) == "user: Be kind.\n\nHi\nassistant: Hello\n"
    assert trained(chatml, row) == ["Hello\n"]


def test_c09_tool_calls_and_results(cli: Any, case: Any, chatml_folder: str, chatml: Tokens) -> None:
    case("C09")
    template = ("--chat-template", str(TEMPLATES / "hermes.jinja"))
    got = cli("sft-gen", "sft.jsonl", "-o", "o.jsonl", "--format", "tokens", "--tokenizer", chatml_folder, *template)
    assert got.code == 0, got.stderr
    [row] = lines("o.jsonl")
    call, answer = trained(chatml, row)
    assert call == '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call><|im_end|>'
    assert answer == "It is 4 C.<|im_end|>"
    assert '"properties": {"city": {"type": "string"}}' in chatml.decode(row["input_ids"])
    cli("sft-gen", "sft.jsonl", "-o", "m.jsonl")
    [row] = lines("m.jsonl")
    assert json.loads(row["tools"])[0]["function"]["name"] == "weather"
    assert [message["role"] for message in row["messages"]] == ["user", "assistant", "tool", "assistant"]


def test_c10_arguments_are_never_encoded_twice(cli: Any, case: Any, chatml_folder: str) -> None:
    case("C10")
    options = ("--format", "text", "--chat-template", "template.jinja")
    assert cli("sft-gen", "sft.jsonl", "-o", "o.jsonl", *options).code == 0
    first, second = lines("o.jsonl")
    assert first["text"] == second["text"]
    assert first["text"].endswith('assistant: <call>f {"a": 1}</call>')
    bad = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{not json"}}]
    write("bad.jsonl", {"messages": [user("go"), says("", tool_calls=bad)]})
    for extra in (options, ()):
        got = cli("sft-gen", "bad.jsonl", "-o", "b.jsonl", *extra)
        assert got.code == 1
        assert "bad.jsonl:1: the arguments of a call to 'f' are not JSON: '{not json'" in got.stderr


def test_c12_exactly_one_bos(cli: Any, case: Any, tmp_path: Path) -> None:
    case("C12")
    tokenizer = make_tokenizer(LLAMA, adds_bos=True)
    tokenizer.chat_template = (TEMPLATES / "llama3.jinja").read_text()
    tokenizer.save_pretrained(str(tmp_path / "llama"))
    options = ("--tokenizer", str(tmp_path / "llama"))
    tokens = load_tokenizer(str(tmp_path / "llama"))
    assert tokens.adds_bos
    got = cli("sft-gen", "sft.jsonl", "-o", "o.jsonl", "--format", "tokens", *options, "--json")
    [row] = lines("o.jsonl")
    assert row["input_ids"].count(tokens.bos_id) == 1
    assert row["input_ids"][0] == tokens.bos_id
    assert got.json["tokens"]["doubled_bos_removed"] == 0
    # A trainer tokenises text itself, and adds its own BOS.
    cli("sft-gen", "sft.jsonl", "-o", "t.jsonl", "--format", "text", *options)
    [row] = lines("t.jsonl")
    assert tokenizer(row["text"])["input_ids"].count(tokens.bos_id) == 1
    # A template that writes it twice.
    Path("twice.jinja").write_text("{{ bos_token }}" + tokenizer.chat_template)
    more = ("--format", "tokens", "--chat-template", "twice.jinja", "--json")
    got = cli("sft-gen", "sft.jsonl", "-o", "w.jsonl", *options, *more)
    assert lines("w.jsonl")[0]["input_ids"].count(tokens.bos_id) == 1
    assert got.json["tokens"]["doubled_bos_removed"] == 1
    assert "1 rows began with two BOS tokens" in got.stderr


def test_finished_rows_can_be_checked(cli: Any, tmp_path: Path) -> None:
    tokenizer = make_tokenizer(LLAMA, adds_bos=True)
    tokenizer.save_pretrained(str(tmp_path / "llama"))
    bos, end = tokenizer.bos_token_id, tokenizer.convert_tokens_to_ids("<|eot_id|>")
    options = ("--check", "--tokenizer", str(tmp_path / "llama"), "--json")
    good = {"input_ids": [bos, 40, 41, end], "labels": [-100, -100, 41, end]}
    write("good.jsonl", good, {"input_ids": [bos, 40, end], "completion_mask": [0, 1, 1]}, {"text": "a"})
    got = cli("sft-gen", "good.jsonl", *options)
    assert (got.code, got.json["found"], got.json["rows_ending_in_an_end_token"]) == (0, {}, 2)
    bad = [
        {"input_ids": [bos, bos, 40, end], "labels": [-100, -100, 40, end]},
        {"text": "<|begin_of_text|>a"},
        {"input_ids": [bos, 40], "labels": [-100, -100]},
        {"input_ids": [bos, 40], "labels": [-100]},
        {"input_ids": [bos, 40], "labels": [-100, 41]},
        {"input_ids": [bos, 40], "labels": [-100, 40]},
        {"messages": []},
    ]
    write("bad.jsonl", *bad)
    got = cli("sft-gen", "bad.jsonl", *options)
    assert got.code == 1
    assert got.json["found"] == {
        "doubled_bos": 2,
        "nothing_trained": 1,
        "lengths_differ": 1,
        "labels_differ": 1,
        "no_end_token": 2,
        "no_tokens": 1,
    }
    assert "bad.jsonl:1: doubled_bos" in got.stderr
    assert cli("sft-gen", "bad.jsonl", "--check").code == 2


def test_c14_the_end_token_is_trained_though_it_is_the_pad_token(
    cli: Any, case: Any, chatml_folder: str, chatml: Tokens
) -> None:
    case("C14")
    got = cli("sft-gen", "sft.jsonl", "-o", "o.jsonl", "--format", "tokens", "--tokenizer", chatml_folder, "--json")
    rows = lines("o.jsonl")
    assert [trained(chatml, row)[-1][-10:] for row in rows] == ["<|im_end|>"] * 2
    assert all(set(row["attention_mask"]) == {1} for row in rows)
    assert got.json["tokens"]["rows_ending_in_an_end_token"] == 2


def test_c16_roles_of_all_dialects(cli: Any, case: Any) -> None:
    case("C16")
    assert cli("sft-gen", "s.json", "-o", "m.jsonl").code == 0
    first, second, third = (row["messages"] for row in lines("m.jsonl"))
    assert [message["role"] for message in first] == ["system", "user", "assistant", "tool", "assistant"]
    assert first[2]["tool_calls"][0]["function"] == {"name": "f", "arguments": {}}
    assert second == third == [user("Q"), says("A")]
    assert cli("sft-gen", "s.json", "-o", "s.jsonl", "--format", "sharegpt").code == 0
    turns = lines("s.jsonl")[0]["conversations"]
    assert [turn["from"] for turn in turns] == ["system", "human", "function_call", "observation", "gpt"]
    assert json.loads(turns[2]["value"]) == {"name": "f", "arguments": {}}


def test_c17_an_unknown_role_is_named(cli: Any, case: Any) -> None:
    case("C17")
    got = cli("sft-gen", "s.json", "-o", "o.jsonl", "--json")
    assert got.code == 0
    assert "s.json:1: conversations[0].role: expected 'human', found the text 'hummany'" in got.stderr
    assert got.json["read"]["rejected"] == {"fields": 1}
    assert len(lines("o.jsonl")) == 1
    Path("all.json").write_text('[{"conversations":[{"from":"hummany","value":"Q"},{"from":"gpt","value":"A"}]}]')
    got = cli("sft-gen", "all.json", "-o", "none.jsonl")
    assert got.code == 6
    assert "--input-format" in got.stderr
    assert not Path("none.jsonl").exists()


def test_c19_weights_decide_what_is_trained(cli: Any, case: Any, chatml_folder: str, chatml: Tokens) -> None:
    case("C19")
    options = ("--format", "tokens", "--tokenizer", chatml_folder, "--json")
    got = cli("sft-gen", "s.jsonl", "-o", "o.jsonl", *options)
    [row] = lines("o.jsonl")
    assert trained(chatml, row) == ["right<|im_end|>"]
    assert got.json["left_out"] == {"weight_fraction": 1, "weight_zero": 1}
    assert "s.jsonl:2: message 1 has the weight 0.5; a mask knows 0 and 1 only" in got.stderr
    got = cli("sft-gen", "s.jsonl", "-o", "m.jsonl")
    first, second = (row["messages"] for row in lines("m.jsonl"))
    assert [message.get("weight") for message in first] == [None, 0.0, None, None]
    assert second[1]["weight"] == 0.5
    assert "2 rows mark messages with weight 0 or a fraction" in got.stderr
    cli("sft-gen", "s.jsonl", "-o", "g.jsonl", "--format", "sharegpt")
    assert lines("g.jsonl")[0]["conversations"][1] == {"from": "gpt", "value": "wrong", "weight": 0.0}
    cli("sft-gen", "s.jsonl", "-o", "p.jsonl", "--format", "prompt-completion")
    assert lines("p.jsonl")[0]["completion"] == [says("right")]
    got = cli("sft-gen", "s.jsonl", "-o", "t.jsonl", "--format", "text", "--tokenizer", chatml_folder)
    assert "2 rows have weights on messages, which text cannot carry" in got.stderr


def test_c21_tools_as_list_and_as_text(cli: Any, case: Any) -> None:
    case("C21")
    got = cli("sft-gen", "s.jsonl", "-o", "o.jsonl")
    first, second = lines("o.jsonl")
    assert first["tools"] == second["tools"]
    assert json.loads(first["tools"]) == [{"type": "function", "function": {"name": "f"}}]
    assert "s.jsonl:3: tools: expected" in got.stderr


def test_i05_parquet_comes_as_plain_values(cli: Any) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "prompt": [{"role": "user", "content": f"q{i}"}],
            "completion": [{"role": "assistant", "content": f"a{i}"}],
            "reward_model": {"style": "rule", "ground_truth": str(i)},
            "extra_info": {"index": i, "split": "train"},
        }
        for i in range(10)
    ]
    pq.write_table(pa.Table.from_pylist(rows), "d.parquet")
    got = cli("sft-gen", "d.parquet", "-o", "o.jsonl", "--field", "extra_info", "--field", "reward_model")
    assert got.code == 0, got.stderr
    out = lines("o.jsonl")
    assert out[3]["messages"] == [user("q3"), says("a3")]
    assert out[3]["extra_info"] == {"index": 3, "split": "train"}
    assert out[3]["reward_model"] == {"style": "rule", "ground_truth": "3"}


# Choice --------------------------------------------------------------------------------------------------------


def replies(path: str) -> list[str]:
    return [row["messages"][-1]["content"] for row in lines(path)]


@pytest.mark.parametrize(
    ("options", "expected", "left_out"),
    [
        ((), ["reply 1", "reply 0"], {"not_best": 4}),
        (("--select", "top", "--top", "2"), ["reply 1", "reply 2", "reply 0", "reply 1"], {"not_best": 2}),
        (("--select", "all"), ["reply 0", "reply 1", "reply 2"] * 2, {}),
        (("--select", "all", "--above", "0.5"), ["reply 1"], {"score": 5}),
        (("--select", "all", "--min-score", "0.5"), ["reply 1", "reply 2"], {"score": 4}),
        (("--above", "0"), ["reply 1"], {"not_best": 1, "score": 4}),
        (("--min-gap", "0.5"), ["reply 1"], {"not_best": 5}),
        (("--select", "all", "--min-gap", "0.4"), ["reply 1", "reply 2"], {"not_best": 4}),
        (("--select", "all", "--max-per-task", "2"), ["reply 0", "reply 1"] * 2, {"task_cap": 2}),
    ],
)
def test_policies(cli: Any, options: tuple[str, ...], expected: list[str], left_out: dict[str, int]) -> None:
    write("r.jsonl", group("a", [0.0, 1.0, 0.5]), group("b", [0, 0, 0]))
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--json", *options)
    assert replies("o.jsonl") == expected
    assert got.json["left_out"] == left_out
    assert got.json["rows"] == len(expected)


def test_a_score_of_zero_is_pointed_out(cli: Any) -> None:
    write("r.jsonl", group("a", [0.0, 0.0]), group("b", [1.0, 0.0]))
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl")
    assert "1 of 2 rollouts taken have a score of 0 or less" in got.stderr
    assert "0 or less" not in cli("sft-gen", "r.jsonl", "-o", "p.jsonl", "--min-score", "0").stderr


def test_identical_answers_of_a_group_are_taken_once(cli: Any) -> None:
    row = group("a", [1, 1, 1])
    for chat in row["messages"]:
        chat[1]["content"] = "same"
    write("r.jsonl", row)
    cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--select", "top", "--top", "3")
    assert len(lines("o.jsonl")) == 1
    cli("sft-gen", "r.jsonl", "-o", "k.jsonl", "--select", "top", "--top", "3", "--keep-duplicates")
    assert len(lines("k.jsonl")) == 3


def test_rollouts_without_scores(cli: Any) -> None:
    write("r.jsonl", group("a", [None, None]))
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl")
    assert got.code == 1
    assert "most were left out as unscored (2)" in got.stderr
    assert "hint: --select all" in got.stderr
    assert cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--select", "all").code == 0
    # A single conversation is nothing to choose from.
    write("one.jsonl", {"messages": [user("q"), says("a")]})
    assert cli("sft-gen", "one.jsonl", "-o", "one-out.jsonl").code == 0


def test_rows_of_one_rollout_are_joined_when_asked(cli: Any) -> None:
    rows = [{"id": f"q/{i}", "task_id": "q", "messages": [user("q"), says(f"a{i}")], "score": i} for i in range(3)]
    write("r.jsonl", *rows)
    cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--group")
    assert replies("o.jsonl") == ["a2"]
    cli("sft-gen", "r.jsonl", "-o", "p.jsonl")
    assert len(lines("p.jsonl")) == 3


def test_of_preference_rows_the_chosen_side_is_taken(cli: Any) -> None:
    write("p.jsonl", {"prompt": [user("q")], "chosen": [says("good")], "rejected": [says("bad")]})
    got = cli("sft-gen", "p.jsonl", "-o", "o.jsonl", "--json")
    assert replies("o.jsonl") == ["good"]
    assert got.json["left_out"] == {"rejected": 1}


def native(ident: str, *rollouts: dict[str, Any]) -> dict[str, Any]:
    made = []
    for i, rollout in enumerate(rollouts):
        made.append({"id": f"{ident}/r{i}", "task_id": ident, "messages": [], **rollout})
    task = {"id": ident, "prompt": [user("q")]}
    return {"schema_version": 1, "group_id": ident, "env": "e", "task": task, "rollouts": made, "model": "m"}


def test_failed_rollouts_are_left_out(cli: Any) -> None:
    failure = {"stage": "generate", "type": "Timeout", "message": "late"}
    row = native(
        "t",
        {"messages": [user("q"), says("good", finish_reason="stop")], "reward": 1.0},
        {"messages": [user("q"), says("half")], "reward": None, "failure": failure},
        {"messages": [user("q"), says("cut")], "reward": 2.0, "stop_reason": "step_limit"},
    )
    write("g.jsonl", row)
    got = cli("sft-gen", "g.jsonl", "-o", "o.jsonl", "--json")
    assert got.json["left_out"] == {"failed": 1, "truncated:step_limit": 1}
    assert lines("o.jsonl") == [{"messages": [user("q"), says("good")], "rollout": "t/r0", "task": "e/t", "score": 1.0}]


# Shapes --------------------------------------------------------------------------------------------------------


def test_prompt_completion_makes_one_row_of_each_reply(cli: Any) -> None:
    chat = [{"role": "system", "content": "S"}, user("U"), says("A"), user("V"), says("B")]
    write("m.jsonl", {"messages": chat})
    cli("sft-gen", "m.jsonl", "-o", "o.jsonl", "--format", "prompt-completion")
    first, second = lines("o.jsonl")
    assert (first["prompt"], first["completion"]) == (chat[:2], [says("A")])
    assert (second["prompt"], second["completion"]) == (chat[:4], [says("B")])
    cli("sft-gen", "m.jsonl", "-o", "l.jsonl", "--format", "prompt-completion", "--train-on", "last")
    assert [row["completion"] for row in lines("l.jsonl")] == [[says("B")]]


def test_train_on_last_marks_what_is_not_trained(cli: Any, chatml_folder: str, chatml: Tokens) -> None:
    write("m.jsonl", {"messages": [user("U"), says("A"), user("V"), says("B"), user("bye")]})
    cli("sft-gen", "m.jsonl", "-o", "o.jsonl", "--train-on", "last")
    [row] = lines("o.jsonl")
    assert row["messages"] == [user("U"), says("A", weight=0.0), user("V"), says("B")]
    options = ("--format", "tokens", "--tokenizer", chatml_folder)
    cli("sft-gen", "m.jsonl", "-o", "t.jsonl", "--train-on", "last", *options)
    assert trained(chatml, lines("t.jsonl")[0]) == ["B<|im_end|>"]
    cli("sft-gen", "m.jsonl", "-o", "a.jsonl", *options)
    assert trained(chatml, lines("a.jsonl")[0]) == ["A<|im_end|>", "B<|im_end|>"]


def test_replies_of_the_prompt_are_context(cli: Any, chatml_folder: str, chatml: Tokens) -> None:
    shots = [user("1+1"), says("2"), user("2+2")]
    write("p.jsonl", {"prompt": shots, "completion": [says("4")]})
    cli("sft-gen", "p.jsonl", "-o", "o.jsonl", "--format", "tokens", "--tokenizer", chatml_folder)
    assert trained(chatml, lines("o.jsonl")[0]) == ["4<|im_end|>"]


def test_what_sharegpt_cannot_hold_is_said(cli: Any) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    beside = {"messages": [user("q"), says("I look.", tool_calls=calls), {"role": "tool", "content": "4"}, says("4")]}
    write("m.jsonl", beside, {"messages": [user("a"), user("b"), says("c")]}, {"messages": [user("a"), says("b")]})
    got = cli("sft-gen", "m.jsonl", "-o", "o.jsonl", "--format", "sharegpt", "--json")
    assert got.json["left_out"] == {"sharegpt_call_beside_text": 1, "sharegpt_turn_order": 1}
    assert got.json["rows"] == 1


# Stored tokens -------------------------------------------------------------------------------------------------


def spanned() -> dict[str, Any]:
    """A rollout of two turns that carries its tokens; the second prompt does not extend the first turn's tokens."""

    def span(ids: list[int], mask: Any = False, restart: bool = False) -> dict[str, Any]:
        return {"ids": ids, "mask": mask, "restart": restart}

    messages = [
        {**user("q"), "tokens": span([1, 2, 3])},
        {**says("a"), "tokens": span([4, 5], True)},
        {**user("r"), "tokens": span([1, 2, 9, 8], restart=True)},
        {**says("b"), "tokens": span([6, 7], [True, True])},
    ]
    return native("t", {"messages": messages, "reward": 1.0})


def test_the_run_s_own_token_ids_are_used(cli: Any) -> None:
    write("g.jsonl", spanned())
    got = cli("sft-gen", "g.jsonl", "-o", "o.jsonl", "--format", "tokens", "--json")
    assert got.code == 0, got.stderr
    first, second = lines("o.jsonl")
    assert first["input_ids"] == [1, 2, 3, 4, 5]
    assert first["labels"] == [-100, -100, -100, 4, 5]
    assert second["input_ids"] == [1, 2, 9, 8, 6, 7]
    assert second["labels"] == [-100] * 4 + [6, 7]
    assert got.json["rows_from_stored_ids"] == 2
    assert first["rollout"] == second["rollout"] == "t/r0"
    cli("sft-gen", "g.jsonl", "-o", "l.jsonl", "--format", "tokens", "--train-on", "last")
    assert [row["labels"] for row in lines("l.jsonl")] == [[-100] * 4 + [6, 7]]


def test_stored_ids_of_atropos_groups(cli: Any, chatml_folder: str, chatml: Tokens) -> None:
    row = group("a", [1.0, 0.0], tokens=[[1, 2, 3], [4, 5]], masks=[[-100, 2, 3], [-100, 5]])
    write("r.jsonl", row)
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--format", "tokens", "--tokenizer", chatml_folder)
    assert lines("o.jsonl")[0]["labels"] == [-100, 2, 3]
    # These ids are not what this tokenizer makes of the reply.
    assert "the stored token ids of 1 of the first rows are not the replies by this tokenizer" in got.stderr
    cli("sft-gen", "r.jsonl", "-o", "p.jsonl", "--format", "tokens", "--tokenizer", chatml_folder, "--retokenize")
    assert trained(chatml, lines("p.jsonl")[0]) == ["reply 0<|im_end|>"]


def test_without_stored_ids_a_tokenizer_is_needed(cli: Any) -> None:
    write("r.jsonl", group("a", [1.0]))
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--format", "tokens")
    assert got.code == 1
    assert "no token ids are stored, and no tokenizer is given" in got.stderr
    assert "hint: --tokenizer NAME" in got.stderr


# Length --------------------------------------------------------------------------------------------------------


def long_chat(turns: int = 6) -> dict[str, Any]:
    chat = [{"role": "system", "content": "be exact"}]
    for i in range(turns):
        chat += [user(f"question {i} " + "the fox " * 10), says(f"answer {i}")]
    return {"messages": chat}


def test_too_long_rows_are_dropped(cli: Any, chatml_folder: str) -> None:
    write("m.jsonl", long_chat(), {"messages": [user("q"), says("a")]})
    options = ("--format", "tokens", "--tokenizer", chatml_folder, "--max-tokens", "120", "--json")
    got = cli("sft-gen", "m.jsonl", "-o", "o.jsonl", *options)
    assert got.json["left_out"] == {"too_long": 1}
    assert got.json["tokens"]["longest"] <= 120
    got = cli("sft-gen", "m.jsonl", "-o", "p.jsonl", "--tokenizer", chatml_folder, "--max-tokens", "120")
    assert len(lines("p.jsonl")) == 1  # messages are counted as the template writes them


def test_long_conversations_are_split_between_exchanges(cli: Any, chatml_folder: str, chatml: Tokens) -> None:
    write("m.jsonl", long_chat())
    options = ("--format", "tokens", "--tokenizer", chatml_folder, "--max-tokens", "120", "--over-length", "split")
    assert cli("sft-gen", "m.jsonl", "-o", "o.jsonl", *options).code == 0
    rows = lines("o.jsonl")
    assert len(rows) > 1
    assert all(len(row["input_ids"]) <= 120 for row in rows)
    assert all(chatml.decode(row["input_ids"]).startswith("<|im_start|>system\nbe exact") for row in rows)
    replies = [text for row in rows for text in trained(chatml, row)]
    assert replies == [f"answer {i}<|im_end|>" for i in range(6)]


def test_the_middle_of_a_long_prompt_is_cut(cli: Any, chatml_folder: str, chatml: Tokens) -> None:
    long = "begin " + "the quick brown fox " * 200 + "end of it"
    write("m.jsonl", {"messages": [{"role": "system", "content": "be exact"}, user(long), says("short answer")]})
    options = ("--tokenizer", chatml_folder, "--max-tokens", "160", "--over-length", "truncate-prompt-middle")
    got = cli("sft-gen", "m.jsonl", "-o", "o.jsonl", "--format", "tokens", *options, "--json")
    assert got.code == 0, got.stderr
    [row] = lines("o.jsonl")
    assert 100 < len(row["input_ids"]) <= 160
    text = chatml.decode(row["input_ids"])
    assert "begin the" in text
    assert "[...]" in text
    assert "end of it<|im_end|>\n<|im_start|>assistant\nshort answer<|im_end|>" in text
    assert trained(chatml, row) == ["short answer<|im_end|>"]
    assert got.json["notes"]["shortened"] == 1
    # A reply that is too long by itself stays whole, and its row is left out.
    write("r.jsonl", {"messages": [user("q"), says(long)]})
    assert cli("sft-gen", "r.jsonl", "-o", "r-out.jsonl", "--format", "tokens", *options).code == 1


def test_stored_ids_are_cut_in_untrained_stretches_only(cli: Any) -> None:
    ids = list(range(1000, 1300))
    row = group("a", [1.0], tokens=[ids], masks=[[-100] * 250 + ids[250:]])
    write("r.jsonl", row)
    options = ("--format", "tokens", "--max-tokens", "150")
    assert cli("sft-gen", "r.jsonl", "-o", "d.jsonl", *options).code == 1
    assert cli("sft-gen", "r.jsonl", "-o", "o.jsonl", *options, "--over-length", "truncate-prompt-middle").code == 0
    [made] = lines("o.jsonl")
    assert len(made["input_ids"]) == 150
    assert [label for label in made["labels"] if label != -100] == ids[250:]
    assert made["input_ids"][:24] == ids[:24]
    assert made["input_ids"][-74:] == ids[226:]


# Output --------------------------------------------------------------------------------------------------------


def test_outputs_splits_and_card(cli: Any) -> None:
    write("r.jsonl", *[group(str(i), [1.0, 0.5]) for i in range(40)])
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--select", "all", "--validation", "0.3")
    assert got.code == 0
    train, validation = lines("o-train.jsonl"), lines("o-validation.jsonl")
    assert len(train) + len(validation) == 80
    assert {row["task"] for row in train}.isdisjoint({row["task"] for row in validation})
    assert len(validation) > 0
    card = json.loads(Path("o.jsonl.card.json").read_text())
    assert card["command"] == "sft-gen"
    assert card["options"]["select"] == "all"
    assert card["counts"]["rows"] == 80
    assert "rollout" in card["lineage"]
    assert cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--validation", "0.3").code == 6  # already there
    assert cli("sft-gen", "r.jsonl", "-o", "r.jsonl").code == 2
    assert len(lines("r.jsonl")) == 40


def test_stdout_takes_rows_and_nothing_else(cli: Any) -> None:
    write("r.jsonl", group("a", [1.0]))
    got = cli("sft-gen", "r.jsonl", "-o", "-")
    assert json.loads(got.stdout)["messages"][-1]["content"] == "reply 0"
    assert "made 1 rows" in got.stderr
    assert cli("sft-gen", "r.jsonl", "-o", "-", "--json").code == 2


def test_dry_run_writes_nothing(cli: Any) -> None:
    write("r.jsonl", group("a", [1.0]))
    got = cli("sft-gen", "r.jsonl", "--dry-run", "--json")
    assert got.json["rows"] == 1
    assert [path.name for path in Path().iterdir()] == ["r.jsonl"]


def test_tables_hold_arguments_as_text(cli: Any) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]
    other = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"b": [2]}}}]
    write("m.jsonl", *[{"messages": [user("q"), says(None, tool_calls=tc)]} for tc in (calls, other)])
    got = cli("sft-gen", "m.jsonl", "-o", "o.parquet")
    assert got.code == 0, got.stderr
    made = pq.read_table("o.parquet").to_pylist()
    assert [row["messages"][1]["tool_calls"][0]["function"]["arguments"] for row in made] == ['{"a":1}', '{"b":[2]}']


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "mesages"), "--format 'mesages' is not one of"),
        (("--top", "2"), "--top needs --select top"),
        (("--format", "text"), "--format text needs a template"),
        (("--max-tokens", "100"), "--max-tokens needs --tokenizer"),
        (("--text",), "--text is for prompt-completion"),
        (("--retokenize",), "--retokenize needs"),
        (("--chat-template", "t.jinja"), "--format messages is not rendered"),
        (("--template-arg", "x", "--format", "text", "--chat-template", "t.jinja"), "is not NAME=VALUE"),
    ],
)
def test_usage_errors(cli: Any, options: tuple[str, ...], message: str) -> None:
    write("r.jsonl", group("a", [1.0]))
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", *options)
    assert got.code == 2
    assert message in got.stderr


def test_tokenizers_and_templates_that_are_not_there(cli: Any, tmp_path: Path) -> None:
    write("r.jsonl", group("a", [1.0]))
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--format", "tokens", "--tokenizer", "./nowhere")
    assert (got.code, "there is no such file or folder" in got.stderr) == (3, True)
    (tmp_path / "empty").mkdir()
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--format", "tokens", "--tokenizer", str(tmp_path / "empty"))
    assert (got.code, "cannot be loaded" in got.stderr) == (6, True)
    Path("bad.jinja").write_text("{% for m in %}")
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--format", "text", "--chat-template", "bad.jinja")
    assert (got.code, "line 1" in got.stderr) == (3, True)


def test_a_template_cannot_reach_out_of_its_sandbox(cli: Any) -> None:
    write("r.jsonl", group("a", [1.0]))
    Path("evil.jinja").write_text("{{ messages.__class__.__mro__[1].__subclasses__() }}")
    got = cli("sft-gen", "r.jsonl", "-o", "o.jsonl", "--format", "text", "--chat-template", "evil.jinja")
    assert got.code == 1
    assert "the chat template refuses: SecurityError" in got.stderr
