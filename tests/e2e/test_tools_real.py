"""The environment of the tutorial about tools on a real vLLM: with its tool parser and without one, the same tokens.

ATROPOS_TEST_VLLM names vLLM's Python. The model is tiny, and made so that what it says is known: it asks for the price
of a lamp, and after the answer it names the sum.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.rollout import token_sequences
from tests.docs.pages import steps_of

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
PYTHON = os.environ.get("ATROPOS_TEST_VLLM", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="ATROPOS_TEST_VLLM is not set"),
]
PAGE = Path(__file__).resolve().parents[2] / "docs/tutorials/tool-environment.md"
PROGRAM = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()"]
END = "<|end|>"
CALL = ("<tool_call>", '\n{"name": "price"', ', "arguments": {"product": "lamp"}}', "\n</tool_call>")
SUM = " They cost 60 euros."
SIZE = 320
"""Width of the model and number of its tokens: each token has a direction of its own."""
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for message in messages %}{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}"
    '<tool_call>\n{"name": "{{ call.function.name }}", '
    '"arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}{% if message.role == 'assistant' %}" + END + "{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama whose every token has one follower."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("models") / "shopper"
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_tokens([AddedToken(piece, normalized=False) for piece in (*CALL, SUM)])
    raw.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END, pad_token=END)
    tokenizer.chat_template = TEMPLATE
    end = tokenizer.eos_token_id
    sizes = {"hidden_size": SIZE, "intermediate_size": 64, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 64}
    special = {"eos_token_id": end, "bos_token_id": end, "pad_token_id": end}
    config = LlamaConfig(
        vocab_size=SIZE, max_position_embeddings=2048, tie_word_embeddings=False, **sizes, **heads, **special
    )
    made = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weights in made.named_parameters():
            if "o_proj" in name or "down_proj" in name:  # the layers add nothing to what a token says
                weights.zero_()
        made.model.embed_tokens.weight.copy_(torch.eye(SIZE))
        made.lm_head.weight.zero_()
        for chain in (("?", *CALL, END), ("0", SUM, END)):
            for before, after in pairwise(tokenizer.convert_tokens_to_ids(list(chain))):
                made.lm_head.weight[after, before] = 4.0
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the environment of the page."""
    folder = tmp_path_factory.mktemp("shop")
    (step,) = (step for step in steps_of(PAGE.read_text(encoding="utf-8")) if step.marks.get("file") == "shop.py")
    (folder / "shop.py").write_text(step.body)
    return folder


@pytest.fixture(scope="module", params=["none", "hermes"])
def groups(request: pytest.FixtureRequest, model: Path, place: Path) -> tuple[str, list[ScoredGroup]]:
    """(the server's tool parser, the groups that were played against it)."""
    parser = request.param
    own = {"XDG_STATE_HOME": str(place / "state"), "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}

    def atropos(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **own}
        return subprocess.run(
            [*PROGRAM, *words], capture_output=True, text=True, timeout=900, cwd=place, env=environment, check=False
        )

    launch = ("launch-vllm", str(model), "--engine-python", PYTHON, "--name", parser, "--context", "2048", "--eager")
    started = atropos(*launch, "--tool-parser", parser, "--dtype", "float32", "--detach", "--json")
    assert started.returncode == 0, started.stderr
    try:
        record = json.loads(started.stdout)
        assert (record["capabilities"]["tools"], record["capabilities"]["token_ids"]) == (parser != "none", True)
        play = ("gen", "./shop.py:Shop", "--base-url", record["urls"][0], "--logprobs", "require", "--group-size", "2")
        made = atropos(*play, "--temperature", "1", "--output", parser)
        assert made.returncode == 0, made.stderr
    finally:
        assert atropos("launch-vllm", "--stop", "--name", parser).returncode == 0
    lines = (place / parser / "groups.jsonl").read_text().splitlines()
    return parser, [ScoredGroup.model_validate_json(line) for line in lines]


def test_calls_are_executed_and_scored(groups: tuple[str, list[ScoredGroup]]) -> None:
    parser, found = groups
    assert [group.task.id for group in found] == ["lamp", "chair", "desk"]
    for group in found:
        for rollout in group.rollouts:
            asked, answered, told = rollout.messages[-3:]
            assert [message.role for message in rollout.messages[-4:]] == ["user", "assistant", "tool", "assistant"]
            assert ("<tool_call>" in asked.text) == (parser == "none")
            assert bool(asked.tool_calls) == (parser != "none")
            assert (answered.text, told.text.strip()) == ("30", SUM.strip())
            assert rollout.reward == float(group.task.id == "lamp")
            assert not rollout.parse_failures


def test_the_tokens_are_those_of_the_conversation(groups: tuple[str, list[ScoredGroup]], model: Path) -> None:
    """One sequence for each rollout: the template's text of all messages, trained where the model spoke."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    for group in groups[1]:
        for rollout in group.rollouts:
            (sequence,) = token_sequences(rollout)
            text = tokenizer.decode(sequence.ids)
            assert text.endswith(f"?{''.join(CALL)}{END}30{SUM}{END}")
            assert text.startswith('{"')  # the tool's schema
            assert '"name": "price"' in text.partition("What do")[0]
            said = [token for token, trained in zip(sequence.ids, sequence.mask, strict=True) if trained]
            assert said == tokenizer.convert_tokens_to_ids([*CALL, END, SUM, END])
            assert sequence.logprobs is not None
            assert max(map(abs, sequence.logprobs)) < 1e-3  # it could say nothing else


def test_a_parser_changes_no_token(place: Path) -> None:
    kept: dict[str, list[Any]] = {}
    for parser in ("none", "hermes"):
        lines = (place / parser / "groups.jsonl").read_text().splitlines()
        found = [ScoredGroup.model_validate_json(line) for line in lines]
        kept[parser] = [
            [(sequence.ids, sequence.mask) for rollout in group.rollouts for sequence in token_sequences(rollout)]
            for group in found
        ]
    assert kept["none"] == kept["hermes"]
    assert len(kept["none"]) == 3
