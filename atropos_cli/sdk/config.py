"""Configuration files: TOML or YAML, read with the line of each key, and mistakes named by their lines."""

from __future__ import annotations

from atropos_cli.config.explain import failures, validation_text
from atropos_cli.config.files import ConfigFile, read_config
from atropos_cli.config.problems import Origin, Problem, raise_problems, suggest

__all__ = [
    "ConfigFile",
    "Origin",
    "Problem",
    "failures",
    "raise_problems",
    "read_config",
    "suggest",
    "validation_text",
]
