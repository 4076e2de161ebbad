"""Whether programs at level "process" are confined by Landlock (Linux 5.13 and later)."""

from __future__ import annotations

from atropos_cli.sdk.isolation import landlock_version


def version() -> int:
    """The version of the kernel's Landlock; 0 where there is none."""
    return landlock_version()
