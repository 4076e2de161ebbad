"""Ask the judge's model: a backend of its own, limited and retried the way the run's backend is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from atropos_cli.sdk import Message
from atropos_cli.sdk.backends import (
    BackendError,
    Completion,
    FatalBackendError,
    GenerateRequest,
    InferenceBackend,
    RateLimited,
    Sampling,
    TransientBackendError,
    make_backend,
)
from atropos_judge.config import JudgeConfig

log = logging.getLogger("atropos.judge")
_FIRST_DELAY = 0.5
_LONGEST_DELAY = 30.0


@dataclass
class _Connection:
    """What belongs to one event loop."""

    loop: asyncio.AbstractEventLoop
    slots: asyncio.Semaphore
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    backend: InferenceBackend | None = None
    wait_until: float = 0.0


class Asker:
    """One judge's model. `requests` counts those that were sent; may be used from one event loop after another."""

    def __init__(self, config: JudgeConfig) -> None:
        self.config = config
        self.requests = 0
        self._connection: _Connection | None = None
        self._fatal: FatalBackendError | None = None
        self._told: set[str] = set()

    async def open(self) -> None:
        """Find out early what every request would meet: a wrong key, an unknown model. A dead server may come back.

        Raises ConfigError and FatalBackendError.
        """
        with contextlib.suppress(TransientBackendError):
            await self._backend(self._here())

    async def close(self) -> None:
        """Close the connections."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.backend is not None:
            await connection.backend.close()

    async def ask(self, messages: Sequence[Message], *, seed: int) -> Completion:
        """One reply. Raises BackendError when the retries are used up, or at once for what no retry mends."""
        config = self.config
        request = GenerateRequest(
            messages=tuple(messages),
            sampling=Sampling(max_tokens=config.max_tokens, temperature=config.temperature),
            seed=seed,
            logprobs="off",
        )
        here = self._here()
        delay = _FIRST_DELAY
        left = config.retries
        give_up = time.monotonic() + config.timeout * (config.retries + 1)
        while True:
            try:
                async with here.slots:
                    return await self._once(here, request)
            except TransientBackendError as error:
                # A server that only asks for patience gets it, within the time that all retries could take.
                if left <= 0 or time.monotonic() >= give_up:
                    raise
                left -= not isinstance(error, RateLimited)
                self._tell(error)
                pause = error.pause(delay * random.uniform(0.75, 1.25), config.timeout)
                if isinstance(error, RateLimited):
                    here.wait_until = max(here.wait_until, time.monotonic() + pause)
                await asyncio.sleep(pause)
                delay = min(2 * delay, _LONGEST_DELAY)

    async def _once(self, here: _Connection, request: GenerateRequest) -> Completion:
        await asyncio.sleep(max(0.0, here.wait_until - time.monotonic()))
        if self._fatal is not None:
            raise self._fatal
        backend = await self._backend(here)
        self.requests += 1
        try:
            async with asyncio.timeout(self.config.timeout):
                generation = await backend.generate(request)
        except TimeoutError as error:
            raise TransientBackendError(f"the judge did not answer within {self.config.timeout:g} s") from error
        except FatalBackendError as error:
            self._fatal = error
            raise
        if not generation.completions:
            raise TransientBackendError("the judge's server answered without a completion")
        return generation.completions[0]

    async def _backend(self, here: _Connection) -> InferenceBackend:
        if here.backend is not None:
            return here.backend
        async with here.opening:
            if here.backend is None:
                config = self.config
                backend = make_backend(config.backend, config.all_backend_options(), model=config.model)
                try:
                    await backend.open(workers=config.concurrency, request_timeout=config.timeout)
                except BaseException as error:
                    with contextlib.suppress(Exception):
                        await backend.close()
                    if isinstance(error, FatalBackendError):
                        self._fatal = error
                    raise
                here.backend = backend
        return here.backend

    def _here(self) -> _Connection:
        """The connection of the running event loop; that of an earlier loop died with it."""
        loop = asyncio.get_running_loop()
        if self._connection is None or self._connection.loop is not loop:
            self._connection = _Connection(loop, asyncio.Semaphore(self.config.concurrency))
        return self._connection

    def _tell(self, error: BackendError) -> None:
        kind = type(error).__name__
        if kind not in self._told:
            self._told.add(kind)
            log.warning("judge: %s; retrying", error)
