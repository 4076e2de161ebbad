"""Texts are tokenized by the model's own tokenizer, or not at all."""

from __future__ import annotations

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli.builtin.openai.backend import OpenAIBackend, OpenAIConfig
from atropos_cli.builtin.scripted import ScriptedBackend, ScriptedConfig
from atropos_cli.errors import FatalBackendError


@pytest.mark.parametrize("flavor", ["vllm", "sglang"])
async def test_the_server_is_asked(flavor: str) -> None:
    with MockServer(flavor=flavor) as server:  # type: ignore[arg-type]
        backend = OpenAIBackend(OpenAIConfig(base_url=(server.base_url,)))
        await backend.open()
        assert list(await backend.tokenize("aé")) == [97, 195, 169]
        await backend.close()
        assert not server.generations


async def test_a_server_without_a_tokenizer_says_so() -> None:
    with MockServer() as server:
        backend = OpenAIBackend(OpenAIConfig(base_url=(server.base_url,)))
        await backend.open()
        with pytest.raises(FatalBackendError, match="does not tokenize"):
            await backend.tokenize("a")
        await backend.close()


async def test_the_scripted_rule() -> None:
    backend = ScriptedBackend(ScriptedConfig(replies=("x",)))
    assert tuple(await backend.tokenize("aé")) == (97, 195, 169)
