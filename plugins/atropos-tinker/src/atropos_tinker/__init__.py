"""Manifest of atropos-tinker: the trainer and the backend `tinker`. Imports nothing heavy.

atropos train grpo --env ENV --trainer tinker --base-url URL     GRPO on a server that speaks the Tinker API
atropos gen ENV --backend tinker --backend.base-url URL          sample from it, without training
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from atropos_cli.sdk import METHODS, ComponentSpec, hookimpl

REQUIRES = ("tinker", "transformers")


@hookimpl
def atropos_register_trainers() -> Iterable[ComponentSpec]:
    """Offer the trainer."""
    yield ComponentSpec(
        kind="trainer",
        name="tinker",
        target="atropos_tinker.trainer:TinkerTrainer",
        summary="GRPO and SFT of LoRA adapters on a server of the Tinker API: the hosted service, SkyRL and others.",
        requires=REQUIRES,
        extra="tinker",
        methods=(METHODS["grpo"], METHODS["sft"]),
    )


@hookimpl
def atropos_register_backends() -> Iterable[ComponentSpec]:
    """Offer the backend."""
    yield ComponentSpec(
        kind="backend",
        name="tinker",
        target="atropos_tinker.backend:TinkerBackend",
        summary="A server of the Tinker API: its base models and checkpoints, and the weights of --trainer tinker.",
        requires=REQUIRES,
        extra="tinker",
    )


@hookimpl
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """Is the client of the Tinker API installed? Reads metadata only."""
    try:
        yield ("tinker: tinker", "ok", version("tinker"))
    except PackageNotFoundError:
        yield ("tinker: tinker", "info", "not installed: pip install 'atropos-tinker[tinker]'")
