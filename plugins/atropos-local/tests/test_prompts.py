"""From messages to ids and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atropos_cli.sdk import FunctionCall, Message, TokenSpan, ToolCall, assistant, system, user
from atropos_cli.sdk.backends import FatalBackendError, RequestRejected
from atropos_cli.sdk.models import Prompts, StopText

pytest.importorskip("transformers")
pytestmark = pytest.mark.model


@pytest.fixture
def tokenizer(tiny: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny)


def shown(tokenizer: Any, ids: Any) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=False)


def test_the_models_own_template_up_to_the_reply(tokenizer: Any) -> None:
    ids = Prompts(tokenizer).encode([system("Be brief."), user("Hi")])
    assert shown(tokenizer, ids) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids[0] == tokenizer.bos_token_id
    assert isinstance(ids[0], int)


def test_plain_joins_contents_by_blank_lines(tokenizer: Any) -> None:
    prompts = Prompts(tokenizer, "plain")
    assert shown(tokenizer, prompts.encode([user("1+2=3"), user("4+5=")])) == "1+2=3\n\n4+5="
    tokenizer.chat_template = None
    assert shown(tokenizer, Prompts(tokenizer, "plain").encode([user("x")])) == "x"


def test_a_template_from_a_file(tokenizer: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]", encoding="utf-8")
    assert shown(tokenizer, Prompts(tokenizer, str(path)).encode([user("Hi")])) == "[user] Hi\n[assistant]"
    with pytest.raises(FatalBackendError, match="no-such-file"):
        Prompts(tokenizer, str(tmp_path / "no-such-file.jinja"))


def test_tools_are_shown_where_the_template_does(tokenizer: Any, tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    with pytest.raises(FatalBackendError, match="shows no tools") as caught:
        Prompts(tokenizer).encode([user("Hi")], tools=[tool])
    assert "--tools-in prompt" in str(caught.value.hint)
    path = tmp_path / "tools.jinja"
    path.write_text("{% for t in tools or [] %}{{ t.function.name }}\n{% endfor %}{{ messages[0].content }}\n")
    prompts = Prompts(tokenizer, str(path))
    assert shown(tokenizer, prompts.encode([user("Hi")], tools=[tool])).split() == ["add", "Hi"]
    assert shown(tokenizer, prompts.encode([user("Hi")])).split() == ["Hi"]


def test_no_template_at_all(tokenizer: Any) -> None:
    tokenizer.chat_template = None
    with pytest.raises(FatalBackendError, match="'my-base' has no chat template") as caught:
        Prompts(tokenizer, model="my-base")
    assert "plain" in str(caught.value.hint)


def test_a_template_that_refuses(tokenizer: Any) -> None:
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(RequestRejected, match=r"roles: user, user.*roles must alternate"):
        Prompts(tokenizer).encode([user("a"), user("b")])


def test_a_template_cannot_reach_the_interpreter(tokenizer: Any) -> None:
    tokenizer.chat_template = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(RequestRejected):
        Prompts(tokenizer).encode([user("a")])


def test_what_templates_see_of_a_message(tokenizer: Any) -> None:
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }}|{{ m.content }}|{{ m.tool_call_id }}|"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}:{{ c.function.arguments.x }}{% endfor %};{% endfor %}"
    )
    call = ToolCall(id="1", function=FunctionCall(name="look", arguments='{"x": 3}'))
    messages = [
        Message(role="user", content=({"type": "text", "text": "a"}, {"type": "text", "text": "b"})),
        Message(role="assistant", content=None, tool_calls=(call,)),
        Message(role="tool", content="seen", tool_call_id="1"),
    ]
    assert shown(tokenizer, Prompts(tokenizer).encode(messages)) == "user|a\nb||;assistant|||look:3;tool|seen|1|;"


def test_pictures_are_refused(tokenizer: Any) -> None:
    message = Message(role="user", content=({"type": "image_url", "image_url": {"url": "x"}},))
    for template in ("auto", "plain"):
        with pytest.raises(RequestRejected, match="image_url"):
            Prompts(tokenizer, template).encode([message])


def after(prompt: tuple[int, ...], reply_ids: tuple[int, ...], text: str) -> list[Message]:
    """A first turn as the engine keeps it: the prompt's ids on its last message, the reply's on the reply."""
    return [
        user("Hi").replace(tokens=TokenSpan(ids=prompt)),
        assistant(text).replace(tokens=TokenSpan(ids=reply_ids, mask=True)),
        user("More"),
    ]


def test_a_next_turn_keeps_the_sampled_ids(tiny_merged: Any) -> None:
    """The sampled split "a", "b" stays, although the tokenizer would write the one token "ab"."""
    prompts = Prompts(tiny_merged)
    assert len(prompts.ids("ab")) == 1
    first = prompts.encode([user("Hi")])
    split = (tiny_merged.convert_tokens_to_ids("a"), tiny_merged.convert_tokens_to_ids("b"))
    end = tiny_merged.eos_token_id
    known = (*first, *split, end)
    ids = prompts.encode(after(first, (*split, end), "ab"))
    assert ids[: len(known)] == known
    assert shown(tiny_merged, ids[len(known) :]) == "\n<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n"
    ids = prompts.encode(after(first, split, "ab"))  # cut by max_tokens: the template's end token follows
    assert ids[: len(known)] == known


def test_a_history_that_was_rewritten_is_tokenised_anew(tiny_merged: Any) -> None:
    prompts = Prompts(tiny_merged)
    first = prompts.encode([user("Hi")])
    messages = after(first, (*prompts.ids("ab"), tiny_merged.eos_token_id), "another text")
    assert prompts.encode(messages) == prompts.encode([user("Hi"), assistant("another text"), user("More")])
    unknown = [user("Hi").replace(tokens=TokenSpan(ids=first)), assistant("ab"), user("More")]
    assert prompts.encode(unknown) == prompts.encode([user("Hi"), assistant("ab"), user("More")])


@pytest.fixture
def tiny_merged() -> Any:
    """The byte tokenizer with one merge, so that a text has two spellings."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {letter: at for at, letter in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return tokenizer


def test_stop_texts(tokenizer: Any) -> None:
    prompts = Prompts(tokenizer)
    stop = StopText(prompts, ("\nQ:", "ü!"))
    ids = prompts.ids("one ü two ü! three")
    ends = [at for at in range(1, len(ids) + 1) if stop.found(ids[:at])]
    assert prompts.decode(ids[: ends[0]]) == "one ü two ü!"
    assert stop.cut("one ü two ü! three\nQ:") == "one ü two "
    assert stop.cut("nothing") == "nothing"
    long = prompts.ids("x" * 500 + "\nQ:")
    assert stop.found(long)
    assert not stop.found(long[:-1])
    assert not StopText(prompts, ()).found(ids)


def test_special_tokens_are_not_text(tokenizer: Any) -> None:
    prompts = Prompts(tokenizer)
    assert prompts.decode([*prompts.ids("hi"), tokenizer.eos_token_id]) == "hi"


def test_a_prompt_ends_with_what_the_reply_begins_with(tokenizer: Any) -> None:
    prompts = Prompts(tokenizer)
    ids = prompts.encode([user("Hi")], "<think>")
    assert shown(tokenizer, ids) == shown(tokenizer, prompts.encode([user("Hi")])) + "<think>"
