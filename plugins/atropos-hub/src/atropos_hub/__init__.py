"""Rows on the Hugging Face hub. atropos loads this module first: it names the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atropos_cli.sdk import hookimpl

if TYPE_CHECKING:
    from atropos_cli.sdk.sharing import Repository, Share


@hookimpl
def atropos_share(repository: Repository) -> Share | None:
    """A data set repository of the hub. A name with a colon is left to other plugins: the hub has none such."""
    if ":" in repository.name:
        return None
    from atropos_hub.hub import HubShare

    return HubShare(repository)
