from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any


class ServerManager:
    def __init__(self, configs: list[Any], server_class: Any) -> None:
        self.max_n_completions = 8
        self.servers = [server_class(config) for config in configs]

    async def wait_for_sem(self, is_training: bool) -> None:
        raise AssertionError("the engine decides how many requests are in flight")

    async def chat_completion(self, **kwargs: Any) -> Any:
        kwargs.pop("split", None)
        await self.wait_for_sem(True)
        assert kwargs.get("n", 1) <= self.max_n_completions
        return await self.servers[0].chat_completion(**kwargs)

    async def completion(self, **kwargs: Any) -> Any:
        return await self.servers[0].completion(**kwargs)

    @asynccontextmanager
    async def managed_server(self, tokenizer: Any = None) -> Any:
        raise AssertionError("a subclass has it")
        yield
