"""A command that the plugin adds."""

from __future__ import annotations

import sys


def hello(name: str = "world") -> None:
    """Greet somebody."""
    sys.stdout.write(f"hello {name}\n")
