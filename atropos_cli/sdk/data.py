"""Stored data: files of rows on this machine or elsewhere."""

from __future__ import annotations

from atropos_cli.io.prompting import PROMPT_PARTS, whole_prompt
from atropos_cli.io.remote import is_remote, local_copy
from atropos_cli.paths import home

__all__ = [
    "PROMPT_PARTS",
    "home",
    "is_remote",
    "local_copy",
    "whole_prompt",
]
