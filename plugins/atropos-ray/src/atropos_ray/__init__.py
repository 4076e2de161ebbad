"""Runs on a Ray cluster. This module is what atropos loads; it names what is here."""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_launchers() -> Iterable[ComponentSpec]:
    """The launcher `ray`."""
    return [
        ComponentSpec(
            "launcher",
            "ray",
            "atropos_ray.launcher:RayLauncher",
            summary="The shards of a run as tasks of a Ray cluster.",
            requires=("ray",),
            extra="ray",
        )
    ]
