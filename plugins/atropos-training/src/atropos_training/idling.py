"""How long the optimiser waited for rollouts, and those who sample for the optimiser."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from atropos_training.ahead import Ahead


class Idling:
    """Shares of the time since the first rollouts. Evaluations are taken out."""

    def __init__(self, ahead: Ahead) -> None:
        self._ahead = ahead
        self._sampler0 = ahead.idle
        self._began = time.monotonic()
        self._waited = 0.0
        self._last = (0.0, 0.0, 0.0)

    def waited(self, seconds: float) -> None:
        """The optimiser had nothing to do."""
        self._waited += seconds

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """What happens inside is not counted."""
        began, idle = time.monotonic(), self._ahead.idle
        try:
            yield
        finally:
            self._began += time.monotonic() - began
            self._sampler0 += self._ahead.idle - idle

    def step(self) -> dict[str, float]:
        """The shares since the last call, as metrics."""
        now = self._now()
        span, optimiser, sampler = (new - old for new, old in zip(now, self._last, strict=True))
        self._last = now
        return _shares(span, optimiser, sampler)

    def total(self) -> str:
        """For people; empty before the first step."""
        span = self._last[0]
        if not span:
            return ""
        shares = _shares(*self._last)
        optimiser, sampler = shares["async/optimiser_idle"], shares["async/sampler_idle"]
        return (
            f"of {span:.0f} s the optimiser waited {optimiser:.0%} for rollouts, and {sampler:.0%} nothing was sampled"
        )

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic() - self._began, self._waited, self._ahead.idle - self._sampler0


def _shares(span: float, optimiser: float, sampler: float) -> dict[str, float]:
    seconds = max(span, 1e-9)
    return {
        "async/optimiser_idle": min(1.0, max(0.0, optimiser / seconds)),
        "async/sampler_idle": min(1.0, max(0.0, sampler / seconds)),
    }
