"""Ways to train, by the names that `atropos train` has for them. Imports nothing heavy: manifests name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Learns = Literal["groups", "steps", "demonstrations", "pairs", "labelled", "own"]
"""What a method learns from: scored groups, steps of an environment that a policy of its trainer plays, rows as
sft-gen, dpo-gen and dpo-gen --kto write them, or data of its own.

own: the trainer reads them, by its own options; no language model is sampled from.
"""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to train: `atropos train NAME`. summary: one line of help."""

    name: str
    summary: str
    learns: Learns


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method(
            "grpo",
            "Train on groups: live ones of an environment (--env), or of stored prompts (--data) with rewards.",
            "groups",
        ),
        Method(
            "sft",
            "Fine-tune on demonstrations: what sft-gen writes, a run, or any data set of TRL's shape.",
            "demonstrations",
        ),
        Method(
            "dpo",
            "Train on preference pairs: what dpo-gen writes, a run, or any data set of TRL's shape.",
            "pairs",
        ),
        Method(
            "kto",
            "Train on single completions labelled good or bad: what dpo-gen --kto writes, or a run.",
            "labelled",
        ),
        Method(
            "reward",
            "Train a reward model on preference pairs: what dpo-gen writes, a run, or any data set of TRL's shape.",
            "pairs",
        ),
    )
}
"""Methods that several trainers may have. A trainer's plugin may name more: `ComponentSpec.methods`."""
