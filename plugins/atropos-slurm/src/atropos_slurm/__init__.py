"""Jobs on a SLURM cluster. This module is what atropos loads; it names what is here."""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_launchers() -> Iterable[ComponentSpec]:
    """The launcher `slurm`."""
    return [
        ComponentSpec(
            "launcher",
            "slurm",
            "atropos_slurm.launcher:SlurmLauncher",
            summary="Jobs of a SLURM cluster, on one node or many.",
        )
    ]
