"""The code of jobs: a folder without what git ignores, and copies of it, on another machine as well."""

from __future__ import annotations

from atropos_cli.jobs.code import (
    MANIFEST,
    Found,
    Item,
    begin,
    code_folder,
    code_of,
    digest_at,
    look,
    missing,
    opened,
    put,
    settle,
    size_text,
)

__all__ = [
    "MANIFEST",
    "Found",
    "Item",
    "begin",
    "code_folder",
    "code_of",
    "digest_at",
    "look",
    "missing",
    "opened",
    "put",
    "settle",
    "size_text",
]
