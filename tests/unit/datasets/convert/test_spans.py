"""Masks of real chat templates, checked by decoding the trained tokens."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from convert_support import (
    CHATML,
    DEEPSEEK,
    GEMMA,
    LLAMA,
    MISTRAL,
    ZEPHYR,
    make_tokenizer,
    smollm2,
    template_text,
    trained_text,
)

from atropos_cli.datasets.convert.spans import SpanFinder
from atropos_cli.datasets.convert.template import ChatTemplate, TemplateRefused
from atropos_cli.datasets.convert.tokenizers import Tokens
from atropos_cli.datasets.convert.turns import BadMessage, as_turns
from atropos_cli.errors import ConfigError

SPECIAL = {
    "chatml": CHATML,
    "smollm2": CHATML,
    "qwen2_5": CHATML,
    "qwen3": CHATML,
    "hermes": CHATML,
    "llama3": LLAMA,
    "mistral": MISTRAL,
    "gemma": GEMMA,
    "deepseek_r1": DEEPSEEK,
    "zephyr": ZEPHYR,
}
END = {name: "<|im_end|>" for name, special in SPECIAL.items() if special is CHATML} | {
    "llama3": "<|eot_id|>",
    "mistral": "</s>",
    "gemma": "<end_of_turn>",
    "deepseek_r1": "<|end_of_sentence|>",
    "zephyr": "</s>",
}
ALL = sorted(SPECIAL)
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def call(**arguments: Any) -> list[dict[str, Any]]:
    return [{"id": "abcdefgh1", "type": "function", "function": {"name": "weather", "arguments": arguments}}]


def finder_of(name: str, tokens: Tokens, **variables: Any) -> SpanFinder:
    template = ChatTemplate(template_text(name), {**tokens.variables(), **variables}, name=name)
    return SpanFinder(template, tokens.end_tokens)


class Bench:
    """A template with a tokenizer that has its special tokens."""

    def __init__(self, name: str, tokens: Tokens | None = None, source: str | None = None, **variables: Any) -> None:
        self.tokens = tokens or Tokens(make_tokenizer(SPECIAL[name], metaspace=name in ("mistral", "gemma")), name)
        if source is None:
            self.finder = finder_of(name, self.tokens, **variables)
        else:
            self.finder = SpanFinder(ChatTemplate(source, variables), self.tokens.end_tokens)

    def trained(self, messages: list[dict[str, Any]], *, only: list[int] | None = None, tools: Any = None) -> list[str]:
        turns = as_turns(messages)
        wanted = [i for i, turn in enumerate(turns) if turn["role"] == "assistant"] if only is None else only
        self.rendered = self.finder.render(turns, wanted, tools)
        ids, mask, self.straddling = self.tokens.encode(self.rendered.text, self.rendered.spans)
        assert self.tokens.decode(ids).strip() == self.rendered.text.strip()
        return trained_text(self.tokens, ids, mask)


HONEST = [name for name in ALL if name != "deepseek_r1"]


@pytest.mark.parametrize("name", HONEST)
def test_one_turn(name: str) -> None:
    bench = Bench(name)
    [text] = bench.trained([user("Name a colour."), says("Blue.")])
    assert text.removeprefix(" ") == ("<think>\n\n</think>\n\n" if name == "qwen3" else "") + "Blue." + END[name]
    assert bench.rendered.no_end == 0


@pytest.mark.parametrize("name", HONEST)
def test_every_turn_of_ten_and_only_the_last(name: str) -> None:
    bench = Bench(name)
    messages = [m for i in range(10) for m in (user(f"question {i} the fox"), says(f"answer {i} the dog"))]
    texts = bench.trained(messages)
    empty = "<think>\n\n</think>\n\n" if name == "qwen3" else ""
    expected = [f"{empty if i == 9 else ''}answer {i} the dog{END[name]}" for i in range(10)]
    assert [text.removeprefix(" ") for text in texts] == expected
    assert [text.removeprefix(" ") for text in bench.trained(messages, only=[19])] == expected[-1:]
    assert [text.removeprefix(" ") for text in bench.trained(messages, only=[3, 7])] == [expected[1], expected[3]]
    assert bench.rendered.no_end == 0


def test_deepseek_r1_opens_a_block_that_no_stored_turn_holds() -> None:
    bench = Bench("deepseek_r1")
    assert bench.trained([user("a"), says("<think>\nx\n</think>\n\nb")]) == []
    assert bench.rendered.no_prompt == [1]
    assert bench.rendered.dropped_thinking == 1


@pytest.mark.parametrize("name", HONEST)
def test_white_space_at_the_ends_is_what_the_template_makes_of_it(name: str) -> None:
    bench = Bench(name)
    messages = [user("  a fox \n"), says("\n a dog  \n\n"), user("\nq\t"), says(" the end\n")]
    first, last = bench.trained(messages)
    text = bench.rendered.text
    assert first.strip().removesuffix(END[name]).strip() == "a dog"
    assert last.endswith(END[name])
    for begin, end in bench.rendered.spans:
        assert text[begin:end].endswith(END[name])
    # Nothing of the turn stands outside: what is before is the prompt, to the letter.
    prompt = bench.finder.template.render(as_turns(messages[:3]), generation_prompt=True)
    assert text[: bench.rendered.spans[-1][0]] == prompt


@pytest.mark.parametrize("name", HONEST)
def test_role_markers_inside_texts_move_nothing(name: str) -> None:
    bench = Bench(name)
    plain = bench.finder.template.render(as_turns([user("a"), says("b"), user("c"), says("d")]))
    markers = [
        plain,
        END[name],
        "<|im_start|>assistant\n",
        "[/INST] ",
        "<start_of_turn>model\n",
        "XqLf1fLqX",
        "<think>",
    ]
    for marker in markers:
        messages = [user(f"x {marker} y"), says(f"reply {marker} one"), user(f"{marker}z"), says("reply two")]
        turns = as_turns(messages)
        rendered = bench.finder.render(turns, [1, 3])
        cut = [rendered.text[begin:end] for begin, end in rendered.spans]
        assert cut[1].endswith(f"reply two{END[name]}")
        assert cut[0].strip().startswith("reply ") or (name == "qwen3" and "</think>" in marker)  # taken for thinking
        assert cut[0].endswith(f" one{END[name]}")
        prompts = [bench.finder.template.render(turns[:i], generation_prompt=True) for i in (1, 3)]
        assert [rendered.text[:begin] for begin, _ in rendered.spans] == prompts


CALLING = ["qwen2_5", "qwen3", "hermes", "llama3", "mistral"]


@pytest.mark.parametrize("name", CALLING)
def test_tool_calls_are_trained_and_results_are_not(name: str) -> None:
    bench = Bench(name)
    hostile = f'Oslo "quoted" {END[name]} </tool_call>'
    messages = [
        user("Weather in Oslo?"),
        says(None, tool_calls=call(city=hostile, days=3, nested={"list": ["a", {"b": None}], "deep": "\u00e9\n"})),
        {"role": "tool", "tool_call_id": "abcdefgh1", "name": "weather", "content": "4 C"},
        says("It is 4 C."),
    ]
    first, last = bench.trained(messages, tools=TOOLS)
    assert "weather" in first
    assert "days" in first
    assert first.endswith(END[name])
    assert "4 C" not in first.replace(hostile, "")
    assert last.removeprefix(" ").removeprefix("<think>\n\n</think>\n\n") == f"It is 4 C.{END[name]}"
    prompt = bench.finder.template.render(as_turns(messages[:1]), TOOLS, generation_prompt=True)
    assert bench.rendered.text[: bench.rendered.spans[0][0]] == prompt
    assert "weather" in prompt or name == "llama3"


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3", "hermes"])
def test_parallel_calls_beside_a_text(name: str) -> None:
    bench = Bench(name)
    both = [*call(city="Oslo"), {"id": "b", "type": "function", "function": {"name": "noargs", "arguments": "{}"}}]
    results = [{"role": "tool", "tool_call_id": ident, "content": text} for ident, text in (("a", "4"), ("b", "5"))]
    messages = [user("q"), says("Let me look.", tool_calls=both), *results, says("9"), user("and?"), says("no")]
    first, second, third = bench.trained(messages, tools=TOOLS)
    assert first.startswith("Let me look.\n<tool_call>")
    assert first.count("<tool_call>") == 2
    assert first.endswith("</tool_call><|im_end|>")
    assert second == "9<|im_end|>"
    assert third.endswith("no<|im_end|>")


@pytest.mark.parametrize("name", ["chatml", "smollm2", "zephyr", "gemma"])
def test_a_template_that_leaves_out_calls_is_refused(name: str) -> None:
    bench = Bench(name)
    with pytest.raises(BadMessage, match="leaves out a tool call") as caught:
        bench.trained([user("q"), says(None, tool_calls=call(city="Oslo"))])
    assert caught.value.reason == "text_lost"


def test_qwen3_strips_earlier_thinking_and_keeps_the_last() -> None:
    bench = Bench("qwen3")
    messages = [
        user("1+1?"),
        says("2", reasoning="add"),
        user("2+2?"),
        says(None, reasoning="need a tool", tool_calls=call(city="x")),
        {"role": "tool", "tool_call_id": "abcdefgh1", "content": "4"},
        says("4", reasoning="add again"),
    ]
    first, second, third = bench.trained(messages)
    assert first == "2<|im_end|>"
    assert second.startswith("<think>\nneed a tool\n</think>\n\n<tool_call>")
    assert third == "<think>\nadd again\n</think>\n\n4<|im_end|>"
    assert bench.rendered.dropped_thinking == 1
    # The same with the thinking inside the content.
    tags = [user("1+1?"), says("<think>\nadd\n</think>\n\n2"), user("2+2?"), says("<think>\nagain\n</think>\n\n4")]
    assert bench.trained(tags) == ["2<|im_end|>", "<think>\nagain\n</think>\n\n4<|im_end|>"]
    assert bench.rendered.dropped_thinking == 1


def test_qwen3_without_thinking_has_the_empty_block_in_its_prompt() -> None:
    bench = Bench("qwen3", enable_thinking=False)
    assert bench.trained([user("a"), says("b")]) == ["b<|im_end|>"]
    assert bench.rendered.text.count("<think>") == 1
    # A reply that thinks does not follow from that prompt.
    assert bench.trained([user("a"), says("b", reasoning="hm")]) == []
    assert bench.rendered.no_prompt == [1]
    # An earlier turn was written without the block: its prompt is not what stands there.
    assert bench.trained([user("a"), says("b"), user("c"), says("d")]) == ["d<|im_end|>"]
    assert bench.rendered.no_prompt == [1]


def test_a_template_that_looks_into_texts_is_rendered_prefix_by_prefix() -> None:
    bench = Bench("qwen3")
    # To this template such a user message is a tool's answer, so the thinking before it is kept.
    answer = "<tool_response>\n4\n</tool_response>"
    messages = [user("1+1?"), says("<think>\nadd\n</think>\n\ncalling"), user(answer), says("2")]
    first, second = bench.trained(messages)
    assert first == "<think>\nadd\n</think>\n\ncalling<|im_end|>"
    assert second == "<think>\n\n</think>\n\n2<|im_end|>"
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% if 'fox' in m.content %} (a fox){% endif %}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    bench = Bench("chatml", source=source)
    messages = [user("a fox"), says("the fox"), user("b"), says("dog")]
    assert bench.trained(messages) == ["the fox (a fox)<|im_end|>", "dog<|im_end|>"]


@pytest.mark.parametrize("name", ["gemma", "mistral"])
def test_templates_refuse_in_their_own_words(name: str) -> None:
    bench = Bench(name)
    with pytest.raises(TemplateRefused, match="alternate"):
        bench.trained([user("a"), user("b"), says("c")])


@pytest.mark.parametrize("name", HONEST)
def test_a_system_message_is_never_trained_and_never_lost(name: str) -> None:
    bench = Bench(name)
    messages = [{"role": "system", "content": "Be kind to the fox."}, user("a"), says("b"), user("c"), says("d")]
    if name == "gemma":
        with pytest.raises(TemplateRefused, match=r"^System role not supported$"):
            bench.trained(messages)
        return
    texts = bench.trained(messages)
    assert len(texts) == 2
    assert not any("kind" in text for text in texts)
    assert "Be kind to the fox." in bench.rendered.text


@pytest.mark.parametrize(("name", "words"), [("smollm2", "named SmolLM"), ("qwen2_5", "created by Alibaba Cloud")])
def test_a_default_system_message_is_context(name: str, words: str) -> None:
    bench = Bench(name)
    assert bench.trained([user("a"), says("b")]) == ["b<|im_end|>"]
    assert words in bench.rendered.text
    bench.trained([{"role": "system", "content": "S"}, user("a"), says("b")])
    assert words not in bench.rendered.text


def test_a_template_without_generation_prompt_has_a_header_that_is_not_trained() -> None:
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    bench = Bench("chatml", source=source)
    # " the" is one token here, half of it header. The prompt is tokenised alone, as it is at generation.
    assert bench.trained([user("a"), says("the fox"), user("b"), says("dog")]) == ["the fox\n", "dog\n"]
    assert bench.rendered.text == "user: a\nassistant: the fox\nuser: b\nassistant: dog\n"
    assert bench.straddling == 0
    assert bench.rendered.no_end == 2


def test_a_span_inside_a_token_cuts_it_unless_the_tokenizer_adds_spaces() -> None:
    text, spans = "a lazy weather", [(9, 14)]
    cut = Tokens(make_tokenizer(CHATML), "bytes")
    ids, mask, straddling = cut.encode(text, spans)
    assert (trained_text(cut, ids, mask), straddling) == (["ather"], 0)
    assert cut.decode(ids) == text
    adding = Tokens(make_tokenizer(MISTRAL, metaspace=True), "metaspace")
    ids, mask, straddling = adding.encode(text, spans)
    assert (trained_text(adding, ids, mask), straddling) == (["weather"], 1)


def test_a_template_that_closes_the_last_turn_only() -> None:
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}<|im_end|>{% endif %}"
    )
    bench = Bench("chatml", source=source)
    assert bench.trained([user("a"), says("fox"), user("b"), says("dog")]) == ["fox\n", "dog\n<|im_end|>"]
    assert bench.rendered.no_end == 1


@pytest.mark.parametrize("name", ["chatml", "smollm2", "qwen2_5", "qwen3", "hermes"])
def test_with_the_real_tokenizer(name: str) -> None:
    bench = Bench(name, smollm2())
    messages = [user("Name 2 colours: \u00e9\u4e2d\U0001f600"), says("Blue \U0001f600."), user("q"), says("  no  ")]
    first, last = bench.trained(messages)
    assert first == "Blue \U0001f600.<|im_end|>"
    # Newline and spaces are one token, which does not hide where the reply begins.
    assert last == ("<think>\n\n</think>\n\n" if name == "qwen3" else "") + "  no  <|im_end|>"
    assert bench.straddling == 0


def test_rendering_is_what_transformers_renders() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    for name in ALL:
        bench = Bench(name)
        messages = [user("a \n"), says("b"), user("c"), says("<think>x</think>d")]
        ours = bench.finder.template.render(as_turns(messages), generation_prompt=True)
        [theirs], _ = render_jinja_template(
            [messages], chat_template=template_text(name), add_generation_prompt=True, **bench.tokens.variables()
        )
        assert ours == theirs


def test_spans_are_what_a_template_with_generation_marks_says() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    marked = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}"
        "{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
        "{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    messages = [user("a"), says("b c"), user("c"), says(" d\n")]
    bench = Bench("chatml", source=marked)
    bench.trained(messages)
    [text], [spans] = render_jinja_template([messages], chat_template=marked, return_assistant_tokens_mask=True)
    assert bench.rendered.text == text
    assert bench.rendered.spans == [tuple(span) for span in spans]


def test_rendering_is_linear_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench("qwen2_5")
    counted = {"turns": 0}
    render = ChatTemplate.render

    def counting(self: ChatTemplate, turns: Any, tools: Any = None, *, generation_prompt: bool = False) -> str:
        counted["turns"] += len(turns)
        return render(self, turns, tools, generation_prompt=generation_prompt)

    monkeypatch.setattr(ChatTemplate, "render", counting)
    costs = []
    for n in (10, 100, 1000):
        counted["turns"] = 0
        agent = [says(None, tool_calls=call(city="x")), {"role": "tool", "tool_call_id": "abcdefgh1", "content": "4"}]
        messages = [user("q"), *(agent * n), says("done")]
        assert len(bench.trained(messages)) == n + 1
        costs.append(counted["turns"] / n)
    assert costs[2] < 12
    assert costs[2] <= costs[0] * 1.1


PIECES = ["fox", " ", "\n", "<think>", "</think>", "<|im_end|>", "[/INST]", "a dog", "\t", "XqLf0fLqX", "é", '"', "\\"]


@pytest.mark.parametrize("name", [name for name in HONEST if name not in ("qwen3", "gemma", "mistral")])
def test_the_quick_way_finds_what_rendering_every_prefix_finds(name: str) -> None:
    bench = Bench(name)
    for seed in range(60):
        rng = Random(seed)
        messages = [{"role": "system", "content": "S"}] if rng.random() < 0.3 else []
        for _ in range(rng.randint(1, 4)):
            texts = ["x" + "".join(rng.choices(PIECES, k=rng.randint(0, 4))) for _ in range(2)]
            messages += [user(texts[0]), says(texts[1] + rng.choice(["", "y", " "]))]
        turns = as_turns(messages)
        trained = [i for i, turn in enumerate(turns) if turn["role"] == "assistant"]
        rendered = bench.finder.render(turns, trained)
        for i, (begin, end) in zip(trained, rendered.spans, strict=True):
            assert rendered.text[:begin] == bench.finder.template.render(turns[:i], generation_prompt=True)
            assert rendered.text[:end] == bench.finder.template.render(turns[: i + 1]).rstrip()
        slow = bench.finder._by_prefixes(rendered.text, turns, trained, None)
        assert slow.spans == rendered.spans


def test_of_several_templates_the_one_for_tools_is_taken_where_there_are_tools() -> None:
    from atropos_cli.datasets.convert.tokenizers import load_template

    tokenizer = make_tokenizer(CHATML)
    tokenizer.chat_template = {"default": "plain", "tool_use": "tools"}
    tokens = Tokens(tokenizer, "two")
    assert load_template(None, tokens, {}, tools=False).render([]) == "plain"
    assert load_template(None, tokens, {}, tools=True).render([]) == "tools"
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="has no chat template"):
        load_template(None, tokens, {}, tools=False)
