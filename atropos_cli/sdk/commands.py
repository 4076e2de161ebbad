"""Commands: options as a model, input and output of rows, and how a command ends."""

from __future__ import annotations

from atropos_cli.cli.passes import Pass, SpreadOptions
from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.config.pairs import json_once, put_once, variable
from atropos_cli.console.command import Command
from atropos_cli.console.commands import ConfigOption, JsonOption, with_flags
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
from atropos_cli.console.ending import again, counted, end, shell
from atropos_cli.console.environments import ChosenEnvironment, EnvironmentCommands
from atropos_cli.console.names import default_run_folder, safe_name
from atropos_cli.console.output import Output
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import ExitCode
from atropos_cli.streams import data_fd, data_stream, give_back_stdout

__all__ = [
    "FORMAT",
    "READING",
    "WRITING",
    "ChosenEnvironment",
    "Command",
    "CommandOptions",
    "ConfigOption",
    "EnvironmentCommands",
    "ExitCode",
    "FormatOptions",
    "InputOptions",
    "Inputs",
    "JsonOption",
    "Output",
    "OutputOptions",
    "Pass",
    "Reading",
    "Session",
    "SplitOptions",
    "SpreadOptions",
    "again",
    "counted",
    "data_fd",
    "data_stream",
    "default_run_folder",
    "end",
    "give_back_stdout",
    "json_once",
    "keep_inputs",
    "option",
    "put_once",
    "read_inputs",
    "read_lines",
    "safe_name",
    "session_of",
    "share",
    "shell",
    "target_of",
    "ticking",
    "variable",
    "with_flags",
    "write_rejects",
]
