"""Trainers of other packages: their Python, the episodes that they play with our engine, and their output files."""

from __future__ import annotations

from atropos_cli.distributed.cluster import Nodes, Ray
from atropos_cli.distributed.episodes import (
    check_plan,
    prompt_of,
    steps_of,
    suite_items,
    training_items,
    try_episode,
    write_folder,
    write_parquet,
)
from atropos_cli.distributed.process import Launched
from atropos_cli.distributed.pythons import ask, check_model, check_python, gpus_here
from atropos_cli.distributed.readback import Lines, Played, prune, publish, raise_fatal

__all__ = [
    "Launched",
    "Lines",
    "Nodes",
    "Played",
    "Ray",
    "ask",
    "check_model",
    "check_plan",
    "check_python",
    "gpus_here",
    "prompt_of",
    "prune",
    "publish",
    "raise_fatal",
    "steps_of",
    "suite_items",
    "training_items",
    "try_episode",
    "write_folder",
    "write_parquet",
]
