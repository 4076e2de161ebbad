"""Replies that must be one of given texts: what each kind of server is asked, and what is made of its answers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli.builtin.openai.choices import ChoiceAsker
from atropos_cli.sdk.backends import FatalBackendError

from .openai_support import ask, chat, opened

CHOICES = ("go east", "take (old) key.", 'say "hi"')
WAYS: dict[str, Any] = {
    "structured_outputs": {"choice": list(CHOICES)},
    "guided_choice": list(CHOICES),
    "regex": r'(go east|take \(old\) key\.|say "hi")',
    "grammar": r'root ::= "go east" | "take (old) key." | "say \"hi\""',
}


def fields(server: MockServer) -> list[dict[str, Any]]:
    return [{name: body[name] for name in WAYS if name in body} for body in (r.json for r in server.generations)]


@pytest.mark.parametrize(
    ("kind", "version", "way"),
    [
        ("vllm", "0.32.0", "structured_outputs"),
        ("vllm", "0.11.0rc1", "structured_outputs"),
        ("vllm", "1.0", "structured_outputs"),
        ("vllm", "0.10.2", "guided_choice"),
        ("vllm", "0.9", "guided_choice"),
        ("vllm", None, "structured_outputs"),
        ("vllm", "unknown", "structured_outputs"),
        ("sglang", None, "regex"),
        ("llama.cpp", None, "grammar"),
        ("openai-compatible", None, "structured_outputs"),
    ],
)
def test_each_kind_of_server_has_its_own_way(kind: str, version: str | None, way: str) -> None:
    assert ChoiceAsker("auto", kind, version).fields(CHOICES) == {way: WAYS[way]}


@pytest.mark.parametrize(("flavor", "way"), [("openai", "structured_outputs"), ("sglang", "regex")])
async def test_the_kind_is_what_the_server_says(flavor: Any, way: str) -> None:
    with MockServer(flavor=flavor, reply="go east") as server:
        async with opened(server) as backend:
            assert backend.capabilities.choices
            generation = await backend.generate(ask(choices=CHOICES))
            await backend.generate(ask())
    assert generation.completions[0].message.text == "go east"
    assert fields(server) == [{way: WAYS[way]}, {}]


@pytest.mark.parametrize("way", WAYS)
async def test_the_way_can_be_named(way: str) -> None:
    with MockServer(reply="go east") as server:
        async with opened(server, choices_field=way) as backend:
            await backend.generate(ask(choices=CHOICES))
    assert fields(server) == [{way: WAYS[way]}]


def test_the_expression_matches_the_choices_alone() -> None:
    assert [text for text in (*CHOICES, "take old key.", "go eastx", "") if re.fullmatch(WAYS["regex"], text)] == [
        *CHOICES
    ]


def test_a_grammar_has_the_escapes_that_llama_cpp_knows() -> None:
    asker = ChoiceAsker("auto", "llama.cpp", None)
    assert asker.fields(("a\b\f\n\\bÄ",)) == {"grammar": r'root ::= "a\x08\x0C\n\\bÄ"'}


async def test_a_server_that_ignores_a_field_is_asked_in_the_next_way_and_stays_there() -> None:
    def reply(body: dict[str, Any], index: int) -> str:
        return "go east" if "guided_choice" in body else "I would go east."

    with MockServer(reply=reply) as server:
        async with opened(server) as backend:
            for _ in range(2):
                generation = await backend.generate(ask(choices=CHOICES, n=2))
                assert [one.message.text for one in generation.completions] == ["go east", "go east"]
    assert [list(one) for one in fields(server)] == [["structured_outputs"], ["guided_choice"], ["guided_choice"]]


async def test_a_server_that_refuses_a_field_is_asked_in_the_next_way() -> None:
    words = "unknown field: structured_outputs"
    with MockServer([{"status": 400, "json": {"error": {"message": words}}}, chat("go east")]) as server:
        async with opened(server) as backend:
            await backend.generate(ask(choices=CHOICES))
    assert [list(one) for one in fields(server)] == [["structured_outputs"], ["guided_choice"]]


@pytest.mark.parametrize("flavor", ["sglang", "openai"])
async def test_a_server_that_knows_no_way_ends_the_run_with_a_hint(flavor: Any) -> None:
    with MockServer(flavor=flavor, reply="Let me think.") as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match=r"cannot choose among given replies.*Let me think") as caught:
                await backend.generate(ask(choices=CHOICES))
    assert "--backend.choices-field" in str(caught.value.hint)
    assert "--pick-from-admissible" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["take (o", "take ", "", "Ä", "Ä\ufffd"])
async def test_a_reply_that_was_cut_off_is_no_fault_of_the_server(text: str) -> None:
    cut = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}
    with MockServer([chat(cut)]) as server:
        async with opened(server) as backend:
            generation = await backend.generate(ask(choices=(*CHOICES, "Äß")))
    assert generation.completions[0].message.text == text


@pytest.mark.parametrize("reason", ["length", "odd"])
async def test_a_cut_reply_that_begins_none_of_them_shows_that_the_field_was_ignored(reason: str) -> None:
    cut = {"index": 0, "message": {"role": "assistant", "content": "Let me take"}, "finish_reason": reason}
    with MockServer([chat(cut)] * 3) as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match="cannot choose among given replies"):
                await backend.generate(ask(choices=CHOICES))


async def test_stop_texts_are_not_sent_and_half_a_surrogate_pair_is_cleaned() -> None:
    with MockServer([chat("go east"), chat("\ufffd!")]) as server:
        async with opened(server) as backend:
            await backend.generate(ask(choices=CHOICES, stop=("east", " ")))
            await backend.generate(ask(choices=("\ud800!", "b")))
    assert ["stop" in request.json for request in server.generations] == [False, False]
    assert server.generations[1].json["structured_outputs"] == {"choice": ["\ufffd!", "b"]}


@pytest.mark.parametrize("flavor", ["vllm", "sglang"])
async def test_token_ids_are_kept_and_logprobs_are_not(flavor: Any) -> None:
    with MockServer(flavor=flavor, reply="go east") as server:
        async with opened(server) as backend:
            free = await backend.generate(ask())
            held = await backend.generate(ask(choices=CHOICES))
            with pytest.raises(FatalBackendError, match="logprobs are required"):
                await backend.generate(ask(choices=CHOICES, logprobs="require"))
    free_tokens, held_tokens = (one.completions[0].message.tokens for one in (free, held))
    assert free_tokens is not None
    assert free_tokens.logprobs is not None
    assert held_tokens is not None
    assert held_tokens.logprobs is None
    assert held_tokens.ids == free_tokens.ids
