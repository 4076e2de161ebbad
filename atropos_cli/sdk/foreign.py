"""Environments of other frameworks: their process, the engine's model for them, and their options."""

from __future__ import annotations

from atropos_cli.foreign.data import Data
from atropos_cli.foreign.family import Family, describe
from atropos_cli.foreign.matching import Sampled, joined_branches, with_spans
from atropos_cli.foreign.model import EngineModel, Exchange, message_of, number_of
from atropos_cli.foreign.options import chosen, config_model
from atropos_cli.foreign.process import Dialect, ForeignFailed, ForeignProcess
from atropos_cli.foreign.store import DEFAULT, Added, added, find, python_for, save

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
    "config_model",
    "describe",
    "find",
    "joined_branches",
    "message_of",
    "number_of",
    "python_for",
    "save",
    "with_spans",
]
