"""Environments of other frameworks: their process, the engine's model for them, and their options."""

from __future__ import annotations

from atropos_cli.foreign.data import Data
from atropos_cli.foreign.family import Family, describe, process_class, server_class
from atropos_cli.foreign.matching import Sampled, joined_branches, shared_prompt, usage_of, with_spans
from atropos_cli.foreign.model import EngineModel, Exchange, message_of, number_of
from atropos_cli.foreign.options import chosen
from atropos_cli.foreign.process import Dialect, ForeignFailed, ForeignProcess
from atropos_cli.foreign.store import DEFAULT, Added, added, find, known, python_for, save

__all__ = [
    "DEFAULT",
    "Added",
    "Data",
    "Dialect",
    "EngineModel",
    "Exchange",
    "Family",
    "ForeignFailed",
    "ForeignProcess",
    "Sampled",
    "added",
    "chosen",
    "describe",
    "find",
    "joined_branches",
    "known",
    "message_of",
    "number_of",
    "process_class",
    "python_for",
    "save",
    "server_class",
    "shared_prompt",
    "usage_of",
    "with_spans",
]
