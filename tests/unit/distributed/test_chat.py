"""The tokens of a conversation under another trainer's Python are those that our own backends make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chat_model import TEMPLATE

from atropos_cli.distributed.chat import Chat, NoPrompt
from atropos_cli.distributed.requests import request_data
from atropos_cli.domain.messages import FunctionCall, Message, TokenSpan, ToolCall
from atropos_cli.models.prompts import Prompts
from atropos_cli.ports.backend import GenerateRequest

TOOLS = ({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}},)
THINKS = (  # of Qwen3's kind: earlier thinking is left out
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ m['content'].split('</think>')[-1] if not loop.last else m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    pytest.importorskip("transformers")
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: at for at, letter in enumerate([*alphabet, "ab", "abc"])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b"), ("ab", "c")]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken("<|im_end|>", special=True), AddedToken("<|im_start|>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>")


@pytest.fixture
def both(tokenizer: Any) -> tuple[Chat, Prompts]:
    tokenizer.chat_template = TEMPLATE
    return Chat(tokenizer), Prompts(tokenizer)


def turn(role: Any, content: str, **more: Any) -> Message:
    return Message(role=role, content=content, **more)


def asked(messages: list[Message], tools: Any = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = request_data(GenerateRequest(messages=tuple(messages), tools=tools))["messages"]
    return found


def test_sampled_ids_stay_as_they_were_sampled(both: tuple[Chat, Prompts], tokenizer: Any) -> None:
    """ "abc" in three tokens: the tokenizer alone would make one of it."""
    chat, prompts = both
    first = [turn("system", "abc"), turn("user", "übung 1")]
    ids, extends = chat.request(asked(first), None, [])
    assert (ids, extends) == (list(prompts.encode(first)), False)
    sampled = [*(tokenizer.convert_tokens_to_ids(letter) for letter in "abc"), tokenizer.eos_token_id]
    assert sampled[0] != tokenizer("abc")["input_ids"][0]
    text = chat.text(sampled)
    assert text == prompts.decode(sampled) == "abc"
    known = [*ids, *sampled]
    spans = TokenSpan(ids=tuple(ids)), TokenSpan(ids=tuple(sampled), mask=True)
    again = [first[0], first[1].model_copy(update={"tokens": spans[0]}), turn("assistant", text, tokens=spans[1])]
    again.append(turn("user", "more"))
    found, extends = chat.request(asked(again), None, known)
    assert extends
    assert found[: len(known)] == known
    assert found == list(prompts.encode(again))


def test_what_was_rewritten_begins_anew(both: tuple[Chat, Prompts]) -> None:
    chat, prompts = both
    known, _ = chat.request(asked([turn("user", "one")]), None, [])
    other = [turn("user", "two"), turn("assistant", "x"), turn("user", "three")]
    found, extends = chat.request(asked(other), None, known)
    assert not extends
    assert found == list(prompts.encode(other))


def test_a_template_that_leaves_out_earlier_thinking(tokenizer: Any) -> None:
    tokenizer.chat_template = THINKS
    chat = Chat(tokenizer)
    first = [turn("user", "1?")]
    ids, _ = chat.request(asked(first), None, [])
    reply = "<think>hm</think>2"
    known = [*ids, *tokenizer(reply)["input_ids"], tokenizer.eos_token_id]
    found, extends = chat.request(asked([*first, turn("assistant", reply), turn("user", "3?")]), None, known)
    assert not extends
    assert "hm" not in chat.text(found)


def test_tools_and_their_calls(both: tuple[Chat, Prompts]) -> None:
    chat, prompts = both
    call = ToolCall(id="c", function=FunctionCall(name="add", arguments=json.dumps({"a": 1})))
    messages = [turn("user", "1"), turn("assistant", "", tool_calls=(call,)), turn("tool", "2", tool_call_id="c")]
    found, _ = chat.request(asked(messages, TOOLS), list(TOOLS), [])
    assert found == list(prompts.encode(messages, tools=TOOLS))
    assert '{"a": 1}' in chat.text(found)  # an object for the template, not a text in quotes
    assert "Tools: " in chat.text(found)


@pytest.mark.parametrize(
    ("template", "tools", "said"),
    [
        (None, None, "no chat template"),
        ("{{ messages[0]['content'] }}", TOOLS, "--env.tools-in prompt"),
        ("{{ raise_exception('no system here') }}", None, "refuses these messages (roles: user): .*no system here"),
    ],
)
def test_messages_without_a_prompt(tokenizer: Any, template: str | None, tools: Any, said: str) -> None:
    tokenizer.chat_template = template
    with pytest.raises(NoPrompt, match=said.replace("(", r"\(").replace(")", r"\)")):
        Chat(tokenizer).request(asked([turn("user", "x")]), tools, [])


def test_it_needs_the_standard_library_alone() -> None:
    """It is copied beside a run, to a Python without atropos."""
    import ast
    import sys

    from atropos_cli.distributed import chat, inside

    for module in (chat, inside):
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
