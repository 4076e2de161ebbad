"""A command with a name that another plugin uses too."""

from __future__ import annotations

import sys


def hello() -> None:
    """Say something else."""
    sys.stdout.write("another hello\n")
