"""Commands: what one takes part in besides its own options."""

from __future__ import annotations

from atropos_cli.console.dataio import (
    WRITING,
    FormatOption,
    Inputs,
    OverwriteOption,
    Reading,
    StrictOption,
    TolerantOption,
    keep_inputs,
    open_inputs,
    read_lines,
    share,
    ticking,
)
from atropos_cli.console.ending import end, shell
from atropos_cli.console.names import safe_name
from atropos_cli.console.output import Output
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import ExitCode

__all__ = [
    "WRITING",
    "ExitCode",
    "FormatOption",
    "Inputs",
    "Output",
    "OverwriteOption",
    "Reading",
    "Session",
    "StrictOption",
    "TolerantOption",
    "end",
    "keep_inputs",
    "open_inputs",
    "read_lines",
    "safe_name",
    "session_of",
    "share",
    "shell",
    "ticking",
]
