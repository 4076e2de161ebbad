"""Models in this process: where their files are, prompts and stop texts, threads."""

from __future__ import annotations

from atropos_cli.models.gguf_cache import gguf_folder, gguf_header
from atropos_cli.models.gguf_cache import load as load_gguf
from atropos_cli.models.loading import loading_model
from atropos_cli.models.prompts import Prompts, StopText, TokenLimits, completion_of, end_ids
from atropos_cli.models.sources import ModelSource, find_model
from atropos_cli.models.threads import cpu_count, wait_passively

__all__ = [
    "ModelSource",
    "Prompts",
    "StopText",
    "TokenLimits",
    "completion_of",
    "cpu_count",
    "end_ids",
    "find_model",
    "gguf_folder",
    "gguf_header",
    "load_gguf",
    "loading_model",
    "wait_passively",
]
