"""How much is said: -q and -v for what this program says, --log-level for the logs of libraries.

    -q    data, errors and the one line that says what came out; libraries log errors only
    -v    also what is in the files anyway: all metrics, every step; libraries log from "info"

A run's own log.jsonl is a record and not affected: it always has all of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from atropos_cli.console.output import NORMAL, QUIET, VERBOSE, printable
from atropos_cli.errors import UsageError

VARIABLE = "ATROPOS_LOG_LEVEL"
LEVELS = ("debug", "info", "warning", "error", "critical")
_BY_OUTPUT = {QUIET: "error", VERBOSE: "info"}
_VARIABLES = ("TRANSFORMERS_VERBOSITY", "DATASETS_VERBOSITY", "HF_HUB_VERBOSITY")
"""Libraries with levels of their own: set before they are imported, and for the programs we start."""


def output_level(words: Sequence[str]) -> int:
    """What -q and -v among the words of a command line ask for; the last one counts."""
    level = NORMAL
    for word in words:
        if word in ("-q", "--quiet"):
            level = QUIET
        elif word in ("-v", "--verbose"):
            level = VERBOSE
    return level


def checked(level: str, source: str) -> str:
    """The level's own name. Raises UsageError."""
    found = level.strip().lower()
    if found not in LEVELS:
        raise UsageError(f"{source} {level!r} is not a level", hint=f"one of {', '.join(LEVELS)}")
    return found


def set_level(asked: str | None, output: int) -> None:
    """Log from this level on standard error; without one from what -q and -v mean, or as libraries do by default."""
    variable = os.environ.get(VARIABLE)
    if asked is not None:
        level = checked(asked, "--log-level")
    elif variable:
        level = checked(variable, VARIABLE)
    elif output in _BY_OUTPUT:
        level = _BY_OUTPUT[output]
    else:
        return
    if asked is not None or variable:
        os.environ[VARIABLE] = level
        for name in _VARIABLES:
            os.environ[name] = level
    _configure(level)


def _configure(level: str) -> None:
    import logging

    class ToStderr(logging.Handler):
        """Writes to whatever standard error is at the time, which redacts secrets and spares the status line."""

        def emit(self, record: Any) -> None:
            try:
                text = printable(self.format(record), lines=False)
                print(text, file=sys.stderr)  # noqa: T201
            except Exception:  # noqa: BLE001 (a message that cannot be made is not a reason to stop the work)
                self.handleError(record)

    root = logging.getLogger()
    for handler in [item for item in root.handlers if type(item).__name__ == ToStderr.__name__]:
        root.removeHandler(handler)
    made = ToStderr()
    made.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root.addHandler(made)
    root.setLevel(level.upper())
