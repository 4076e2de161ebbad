"""What the server has counted since it started."""

from __future__ import annotations

from dataclasses import dataclass, field

_UNITS_OF_RATE = 256


@dataclass(slots=True)
class Counts:
    """Since the server started. recent: when the last groups came."""

    groups: int = 0
    sequences: int = 0
    buffered: int = 0
    duplicates: int = 0
    refused: int = 0
    batches: int = 0
    served: int = 0
    acknowledged: int = 0
    redelivered: int = 0
    damaged: int = 0
    unfit: int = 0
    recent: list[float] = field(default_factory=list)


def remember(times: list[float], now: float) -> None:
    """Add a time, and keep as many as a rate needs."""
    times.append(now)
    if len(times) > 2 * _UNITS_OF_RATE:
        del times[:-_UNITS_OF_RATE]
