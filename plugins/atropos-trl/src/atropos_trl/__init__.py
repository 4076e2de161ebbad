"""Manifest of atropos-trl: the trainers `trl` and `native`. Imports nothing heavy.

atropos train grpo --env ENV --trainer trl         GRPO and its relatives by TRL
atropos train grpo --data RUN --trainer native     a plain PyTorch loop: groups of any size, stored groups
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from atropos_cli.sdk import METHODS, ComponentSpec, hookimpl

REQUIRES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
NATIVE_REQUIRES = ("torch", "transformers")


@hookimpl
def atropos_register_trainers() -> Iterable[ComponentSpec]:
    """Offer both trainers."""
    return [
        ComponentSpec(
            kind="trainer",
            name="trl",
            target="atropos_trl.trainer:TrlTrainer",
            summary="GRPO (and dr_grpo, dapo, gspo, cispo, rloo ...), SFT, DPO, KTO and reward models by TRL.",
            requires=REQUIRES,
            extra="train",
            methods=tuple(METHODS.values()),
        ),
        ComponentSpec(
            kind="trainer",
            name="native",
            target="atropos_trl.native.trainer:NativeTrainer",
            summary="A plain PyTorch loop: groups of any size, turn-level rows, stored groups.",
            requires=NATIVE_REQUIRES,
            extra="train",
            methods=(METHODS["grpo"],),
        ),
    ]


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """Offer what `train reward` trains."""
    yield ComponentSpec(
        kind="reward",
        name="reward-model",
        target="atropos_trl.reward_model:reward_model",
        summary="The number that a trained reward model gives the conversation.",
        requires=NATIVE_REQUIRES,
        extra="train",
    )


@hookimpl
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """Which of the training packages are installed; reads metadata only."""
    for name in REQUIRES:
        try:
            yield (f"train: {name}", "ok", version(name))
        except PackageNotFoundError:
            yield (f"train: {name}", "warn", "not installed: pip install 'atropos-trl[train]'")
