"""Manifest of atropos-skyrl: the trainer `skyrl`. Imports nothing heavy.

atropos train grpo --env ENV --trainer skyrl --model MODEL --python ~/skyrl/bin/python --steps 100
"""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import METHODS, ComponentSpec, hookimpl


@hookimpl
def atropos_register_trainers() -> Iterable[ComponentSpec]:
    """Offer the trainer."""
    return [
        ComponentSpec(
            kind="trainer",
            name="skyrl",
            target="atropos_skyrl.trainer:SkyrlTrainer",
            summary="GRPO and its relatives by SkyRL in a Python of its own: Ray, FSDP or Megatron, vLLM, many GPUs.",
            methods=(METHODS["grpo"],),
        )
    ]
