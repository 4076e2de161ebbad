"""Trainers of other packages: their Python, the episodes that they play with our engine, and their output files."""

from __future__ import annotations

from atropos_cli.distributed.episodes import prompt_of
from atropos_cli.distributed.options import PackageConfig, Shape, own_setting, save_every
from atropos_cli.distributed.pythons import check_model
from atropos_cli.distributed.running import Running, number_in, numbered
from atropos_cli.distributed.trainer import EVAL_ROWS, TRAIN_ROWS, PackageTrainer

__all__ = [
    "EVAL_ROWS",
    "TRAIN_ROWS",
    "PackageConfig",
    "PackageTrainer",
    "Running",
    "Shape",
    "check_model",
    "number_in",
    "numbered",
    "own_setting",
    "prompt_of",
    "save_every",
]
