"""A server other than the run's own that scores predictions: weights that stay as they are while others train."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from atropos_cli.sdk.backends import InferenceBackend, TransientBackendError, make_backend

TRIES = 5
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0

T = TypeVar("T")


class ScorerServer:
    """Scores by an OpenAI-compatible server that gives log-probabilities of prompts (vLLM, SGLang)."""

    def __init__(self, backend: InferenceBackend, at_once: int) -> None:
        self._backend = backend
        self._slots = asyncio.Semaphore(at_once)

    @classmethod
    async def open(cls, url: str, model: str, workers: int) -> ScorerServer:
        """Raises BackendError when nobody answers."""
        backend = make_backend("openai", {"base_url": url}, model=model or None)
        try:
            await backend.open(workers=workers)
        except BaseException:
            await backend.close()
            raise
        return cls(backend, workers)

    async def tokenize(self, text: str) -> Sequence[int]:
        """The ids of a text. Raises BackendError."""
        return await self._try(lambda: self._backend.tokenize(text))

    async def score_logprobs(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """Log-probabilities of the continuation. Raises BackendError."""
        return await self._try(lambda: self._backend.score(prefix_ids, continuation_ids))

    async def _try(self, send: Callable[[], Awaitable[T]]) -> T:
        pause = FIRST_PAUSE
        for _ in range(TRIES - 1):
            try:
                async with self._slots:
                    return await send()
            except TransientBackendError as error:
                await asyncio.sleep(error.pause(pause, LONGEST_PAUSE))
                pause *= 2
        async with self._slots:
            return await send()

    async def close(self) -> None:
        """Disconnect."""
        await self._backend.close()
