from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pydantic import BaseModel


class APIServerConfig(BaseModel):
    model_name: str = "default"
    base_url: str | None = ""
    api_key: str | None = ""
    health_check: bool = True


class APIServer(ABC):
    def __init__(self, config: APIServerConfig, reasoning_config: Any = None) -> None:
        self.config = config
        self.server_healthy = True

    @abstractmethod
    async def check_server_status_task(self, chat_completion: bool = True) -> None: ...

    @abstractmethod
    async def _chat_completion_wrapper(self, **kwargs: Any) -> Any: ...

    @abstractmethod
    async def _completion_wrapper(self, **kwargs: Any) -> Any: ...

    @abstractmethod
    async def _tokens_and_logprobs_completion_wrapper(self, **kwargs: Any) -> Any: ...
