"""Make, open and close the backends of a run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from atropos_cli.domain.plan import Plan
from atropos_cli.errors import BackendError, ServerUnavailable
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.backend import InferenceBackend
from atropos_cli.ports.environment import Environment
from atropos_cli.ports.reward import Reward
from atropos_cli.ports.toolsource import ToolSource
from atropos_cli.rollout.references import make_config
from atropos_cli.rollout.stopping import Abort

_CLOSE_TIMEOUT = 10.0


def make_backend(plan: Plan, registry: Registry, *, secrets: str = "ATROPOS_BACKEND__") -> InferenceBackend:
    """The plan's backend, its options checked; not opened yet. secrets: how variables of secret options begin."""
    cls = registry.find("backend", plan.backend.name, dist=plan.backend.dist).load()
    config = make_config(cls.Config, plan.backend.config, owner=f"backend {plan.backend.name!r}", env_prefix=secrets)
    backend: InferenceBackend = cls(config, model=plan.model)
    return backend


async def open_backend(
    backend: InferenceBackend, plan: Plan, on_event: Callable[[str, str], None], stop: asyncio.Event
) -> None:
    """Open the backend; wait up to max_wait for a server that is not there yet."""
    began = time.monotonic()
    told = False
    delay = 0.25
    while True:
        try:
            await backend.open(workers=plan.execution.workers, request_timeout=plan.execution.request_timeout)
            return
        except ServerUnavailable as error:
            waited = time.monotonic() - began
            if stop.is_set() or waited >= plan.execution.max_wait:
                raise Abort(
                    ServerUnavailable(
                        f"{error}; gave up after {waited:.0f} s",
                        hint=error.hint or "start a server, or try a small model in process: --model smollm2",
                        address=error.address,
                    )
                ) from error
            if not told:
                told = True
                on_event("paused", f"{error}; waiting for it")
        except BackendError as error:
            raise Abort(error) from error
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), min(delay, max(0.0, plan.execution.max_wait - waited)))
        delay = min(delay * 2, 2.0)


async def close_part(part: Environment | InferenceBackend | Reward | ToolSource) -> None:
    """Close a part; one that hangs or fails must not keep the rest from closing."""
    with contextlib.suppress(Exception, SystemExit):
        async with asyncio.timeout(_CLOSE_TIMEOUT):
            await part.close()
