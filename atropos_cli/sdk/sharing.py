"""Sharing rows: a place that they are pushed to, and the card that names their sources."""

from __future__ import annotations

from atropos_cli.console.dataio import RepositoryOptions
from atropos_cli.io.card import as_markdown as card_markdown
from atropos_cli.io.card import card_path, describe_source
from atropos_cli.ports.sharing import Repository, Share

__all__ = [
    "Repository",
    "RepositoryOptions",
    "Share",
    "card_markdown",
    "card_path",
    "describe_source",
]
