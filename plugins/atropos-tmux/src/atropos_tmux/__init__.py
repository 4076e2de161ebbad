"""Jobs in tmux. This module is what atropos loads; it names what is here."""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_launchers() -> Iterable[ComponentSpec]:
    """The launcher `tmux`."""
    return [
        ComponentSpec(
            "launcher",
            "tmux",
            "atropos_tmux.launcher:TmuxLauncher",
            summary="A tmux session on this machine: goes on after logout.",
        )
    ]
