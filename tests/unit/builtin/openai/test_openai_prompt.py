"""Prompts for the completions endpoint: templates and tokenizers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli.builtin.openai.prompt import make_render
from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.backends import FatalBackendError, RequestRejected

from .openai_support import ask, opened

MESSAGES: list[dict[str, Any]] = [{"role": "system", "content": "Play."}, {"role": "user", "content": "Go"}]
TOOLS = ({"type": "function", "function": {"name": "move"}},)
TEMPLATE = """\
{{ bos_token }}{% for message in messages %}
{{ "[" + message.role + "] " + message.content }}{% for call in message.tool_calls or [] %}
{{ " CALL " + call.function.name + " " + call.function.arguments.to }}{% endfor %}
{{ "\\n" }}{% endfor %}
{% if tools %}
{{ "TOOLS " + (tools | tojson) + "\\n" }}{% endif %}
{% if add_generation_prompt %}
[assistant]{% endif %}"""


def template(folder: Path, text: str) -> str:
    path = folder / "template.jinja"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_plain_joins_contents() -> None:
    render = make_render(None, None)
    assert render(MESSAGES, None) == "Play.\n\nGo"
    assert render([*MESSAGES, {"role": "assistant", "content": None}], None) == "Play.\n\nGo"
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert render([{"role": "user", "content": parts}], None) == "a\nb"
    with pytest.raises(FatalBackendError, match="'plain' cannot show tools"):
        render(MESSAGES, TOOLS)


def test_a_jinja_file(tmp_path: Path) -> None:
    render = make_render(template(tmp_path, TEMPLATE), None)
    assert render(MESSAGES, None) == "[system] Play.\n[user] Go\n[assistant]"
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "move", "arguments": '{"to":"é"}'}}],
    }
    assert render([call], None) == "[assistant]  CALL move é\n[assistant]"
    rendered = render(MESSAGES, TOOLS)
    assert isinstance(rendered, str)
    assert json.loads(rendered.split("TOOLS ")[1].split("\n")[0]) == list(TOOLS)


def test_arguments_that_are_no_object_stay_text(tmp_path: Path) -> None:
    render = make_render(template(tmp_path, "{{ messages[0].tool_calls[0].function.arguments }}"), None)
    for arguments in ("[1]", "not json"):
        assert (
            render([{"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]}], None) == arguments
        )


def test_a_template_may_refuse(tmp_path: Path) -> None:
    render = make_render(template(tmp_path, "{{ raise_exception('roles must alternate') }}"), None)
    with pytest.raises(RequestRejected, match="roles must alternate"):
        render(MESSAGES, None)


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    ],
)
def test_templates_run_in_a_sandbox(tmp_path: Path, text: str) -> None:
    render = make_render(template(tmp_path, text), None)
    with pytest.raises(RequestRejected, match="refuses the messages"):
        render(MESSAGES, None)


def test_templates_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="neither plain, chatml nor a readable file"):
        make_render("chatlm", None)
    with pytest.raises(ConfigError, match="is not a jinja template"):
        make_render(template(tmp_path, "{% if %}"), None)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match="needs jinja2") as caught:
        make_render(template(tmp_path, "x"), None)
    assert caught.value.hint == "pip install jinja2"


async def test_a_wrong_template_is_found_at_open() -> None:
    with MockServer() as server, pytest.raises(ConfigError, match="chatlm"):
        await _open(server, chat_template="chatlm")
    assert server.requests == []


async def _open(server: MockServer, **options: Any) -> None:
    async with opened(server, endpoint="completions", **options):
        pass


# --- tokenizers


@pytest.fixture
def tokenizer_folder(tmp_path: Path) -> Path:
    """A real, tiny tokenizer: words and single characters of a fixed vocabulary."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = ["<unk>", "<s>", "[system]", "[user]", "[assistant]", "Play.", "Go"]
    model = tokenizers.models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>")
    fast = tokenizers.Tokenizer(model)
    fast.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=fast, unk_token="<unk>", bos_token="<s>")
    folder = tmp_path / "tokenizer"
    tokenizer.save_pretrained(folder)
    return folder


def set_template(folder: Path) -> None:
    text = "{{ bos_token }} {% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}[assistant]"
    (folder / "chat_template.jinja").write_text(text, encoding="utf-8")


@pytest.mark.model
async def test_a_tokenizer_sends_exact_ids(tokenizer_folder: Path) -> None:
    set_template(tokenizer_folder)
    with MockServer(flavor="vllm") as server:
        async with opened(server, endpoint="completions", tokenizer=str(tokenizer_folder)) as backend:
            generation = await backend.generate(ask("Go"))
    assert server.generations[0].json["prompt"] == [1, 3, 6, 4]
    assert generation.prompt_ids == (1, 3, 6, 4)


@pytest.mark.model
def test_a_tokenizer_with_another_template(tokenizer_folder: Path, tmp_path: Path) -> None:
    name = str(tokenizer_folder)
    assert make_render("plain", name)(MESSAGES, None) == [1, 5, 6]
    own = template(tmp_path, "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}[assistant]")
    assert make_render(own, name)(MESSAGES, None) == [2, 5, 3, 6, 4]


@pytest.mark.model
def test_tokenizers_that_cannot_be_used(
    tokenizer_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="has no chat template") as caught:
        make_render(None, str(tokenizer_folder))
    assert "--backend.chat-template" in str(caught.value.hint)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        make_render(None, str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match="needs transformers") as caught:
        make_render(None, str(tokenizer_folder))
    assert caught.value.hint == "pip install transformers"
