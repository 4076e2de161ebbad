"""Manifest of atropos-verl: the trainer `verl`. Imports nothing heavy.

atropos train grpo --env ENV --trainer verl --model MODEL --python ~/verl/bin/python --steps 100
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
            name="verl",
            target="atropos_verl.trainer:VerlTrainer",
            summary="GRPO and its relatives by verl in a Python of its own: Ray, FSDP, vLLM or SGLang, many GPUs.",
            methods=(METHODS["grpo"],),
        )
    ]
