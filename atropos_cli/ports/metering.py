"""Where requests are paid for: the meter of the run that is going on, for backends that plugins open themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Protocol

from atropos_cli.ports.backend import GenerateRequest, Generation, InferenceBackend

Send = Callable[[GenerateRequest], Awaitable[Generation]]


class Meter(Protocol):
    """Counts what requests cost, and keeps them within what may be spent."""

    def check(self, backend: InferenceBackend) -> None:
        """The opened backend's model has a price, where one is needed. Raises ConfigError."""

    async def pay(self, backend: InferenceBackend, request: GenerateRequest, send: Send) -> Generation:
        """Send the request if it may cost what it can cost, and count what it did cost."""


current: ContextVar[Meter | None] = ContextVar("atropos_meter", default=None)
"""The meter of this run; tasks that the run starts inherit it."""


def metered(backend: InferenceBackend) -> InferenceBackend:
    """The same backend, its requests counted by the meter of whatever run sends them; by none outside a run.

    Its methods are replaced on the object, not wrapped in another class: plugins look at attributes of their own.
    """
    generate, opened = backend.generate, backend.open

    async def counted(request: GenerateRequest) -> Generation:
        meter = current.get()
        return await generate(request) if meter is None else await meter.pay(backend, request, generate)

    async def checked(**options: Any) -> None:
        await opened(**options)
        meter = current.get()
        if meter is not None:
            meter.check(backend)

    vars(backend).update(generate=counted, open=checked)
    return backend
