"""CPU threads of numerical libraries, before they are imported."""

from __future__ import annotations

import os
import sys

SMALL_MACHINE = 8
_WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def cpu_count() -> int:
    """CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def wait_passively() -> None:
    """Make OpenMP threads sleep, not spin, between operations. Has an effect only before torch is imported.

    Spinning threads that share few cores with other programs take the time of the ones that work:
    a step can become several times slower. The user's own OpenMP settings are left alone.
    """
    if "torch" in sys.modules or cpu_count() > SMALL_MACHINE:
        return
    if not any(name in os.environ for name in _WAIT_VARIABLES):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
