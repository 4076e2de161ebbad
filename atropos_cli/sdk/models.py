"""Models in this process: where their files are, prompts and stop texts, threads."""

from __future__ import annotations

from atropos_cli.models.loading import loading_model
from atropos_cli.models.prompts import Prompts, StopText, TokenLimits, completion_of, end_ids, template_turn
from atropos_cli.models.sources import ModelSource, find_model
from atropos_cli.models.threads import cpu_count, wait_passively
from atropos_cli.paths import user_cache
from atropos_cli.plugins.modelfiles import open_model_file
from atropos_cli.ports.modelfile import ModelFile

__all__ = [
    "ModelFile",
    "ModelSource",
    "Prompts",
    "StopText",
    "TokenLimits",
    "completion_of",
    "cpu_count",
    "end_ids",
    "find_model",
    "loading_model",
    "open_model_file",
    "template_turn",
    "user_cache",
    "wait_passively",
]
