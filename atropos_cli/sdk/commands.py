"""Commands: options as a model, input and output of rows, and how a command ends."""

from __future__ import annotations

from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.console.commands import JsonOption, with_flags
from atropos_cli.console.dataio import (
    FORMAT,
    READING,
    WRITING,
    FormatOptions,
    InputOptions,
    Inputs,
    OutputOptions,
    Reading,
    SplitOptions,
    keep_inputs,
    read_inputs,
    read_lines,
    share,
    target_of,
    ticking,
    write_rejects,
)
from atropos_cli.console.ending import end, shell
from atropos_cli.console.names import safe_name
from atropos_cli.console.output import Output
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import ExitCode

__all__ = [
    "FORMAT",
    "READING",
    "WRITING",
    "CommandOptions",
    "ExitCode",
    "FormatOptions",
    "InputOptions",
    "Inputs",
    "JsonOption",
    "Output",
    "OutputOptions",
    "Reading",
    "Session",
    "SplitOptions",
    "end",
    "keep_inputs",
    "option",
    "read_inputs",
    "read_lines",
    "safe_name",
    "session_of",
    "share",
    "shell",
    "target_of",
    "ticking",
    "with_flags",
    "write_rejects",
]
