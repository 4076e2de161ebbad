"""Commands: what one takes part in besides its own options."""

from __future__ import annotations

from atropos_cli.errors import ExitCode

__all__ = [
    "ExitCode",
]
