"""What the tests of the OpenAI backend share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import case_tables
from atropos_authoring.mock_server import MockServer

from atropos_cli.builtin.openai.backend import OpenAIBackend, OpenAIConfig
from atropos_cli.sdk import user
from atropos_cli.sdk.backends import GenerateRequest, Sampling


def field_case(case_id: str) -> list[dict[str, Any]]:
    """The server script of a field case."""
    script: list[dict[str, Any]] = case_tables.field_case(case_id)["input"]["mock_server"]
    return script


@asynccontextmanager
async def opened(
    *servers: MockServer, model: str | None = None, timeout: float = 10.0, **options: Any
) -> AsyncIterator[OpenAIBackend]:
    """A backend, open on these servers."""
    urls = tuple(server.base_url for server in servers)
    backend = OpenAIBackend(OpenAIConfig(base_url=urls, **options), model=model)
    try:
        await backend.open(workers=8, request_timeout=timeout)
        yield backend
    finally:
        await backend.close()


def ask(text: str = "What is 6*7?", **fields: Any) -> GenerateRequest:
    """A request; sampling fields may be given as keywords too."""
    sampling = {name: fields.pop(name) for name in list(fields) if name in Sampling.model_fields}
    return GenerateRequest(messages=(user(text),), sampling=Sampling(**sampling), **fields)


def chat(*contents: Any, **extra: Any) -> dict[str, Any]:
    """A script entry with an ordinary chat answer; a content may be a whole choice."""
    choices = [
        content
        if isinstance(content, dict)
        else {"index": index, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        for index, content in enumerate(contents)
    ]
    return {"status": 200, "json": {"choices": choices, **extra}}
