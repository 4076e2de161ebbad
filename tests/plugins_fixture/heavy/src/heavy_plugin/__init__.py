"""Manifest of a plugin whose backend needs torch. Light: reading it must not import torch."""

from __future__ import annotations

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_backends() -> ComponentSpec:
    return ComponentSpec(
        "backend",
        "heavy",
        "heavy_plugin.backend:HeavyBackend",
        summary="A model in this process.",
        requires=("torch",),
        extra="torch",
        aliases=("heavy-model",),
    )
