"""SkyRL while it runs: how it is started, its names of numbers, and where its weights are.

Its checkpoints hold pieces of weights that only SkyRL loads. Weights as transformers loads them are exported beside
them; such an export is complete when `atropos_skyrl_main` has written its step into a file.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from atropos_cli.sdk.distributed import Running, number_in, numbered

from .settings import EXPORTS


class SkyrlRunning(Running):
    """See Running."""

    package: ClassVar[str] = "skyrl"
    main: ClassVar[Sequence[str]] = ("-m", "atropos_skyrl_main")
    variables: ClassVar[Mapping[str, str]] = {"SKYRL_PYTHONPATH_EXPORT": "1"}
    metrics_variable: ClassVar[str] = "ATROPOS_SKYRL_METRICS"
    names: ClassVar[Mapping[str, str]] = {
        "policy/policy_loss": "loss",
        "policy/grad_norm": "grad_norm",
        "policy/policy_kl": "kl",
        "policy/policy_entropy": "entropy",
        "policy/policy_lr": "learning_rate",
        "policy/loss_metrics/clip_ratio": "clip_ratio",
        "reward/avg_raw_reward": "reward",
        "generate/avg_assistant_tokens": "completions/mean_length",
        "generate/max_assistant_tokens": "completions/max_length",
        "generate/avg_cut": "completions/clipped_ratio",
        "generate/avg_num_turns": "num_turns",
        "timing/step": "step_time",
    }
    marks: ClassVar[frozenset[str]] = frozenset({"policy/policy_loss", "reward/avg_raw_reward"})
    evaluation: ClassVar[str] = "eval/"
    ignored: ClassVar[tuple[str, ...]] = ("trainer/epoch", "trainer/global_step")

    def latest(self) -> int:
        """See Running."""
        return number_in(self._folder / EXPORTS / "latest")

    def saved(self) -> list[int]:
        """See Running."""
        return numbered(self._folder / EXPORTS, "global_step_")

    def weights(self, step: int) -> Path:
        """See Running."""
        return self._folder / EXPORTS / f"global_step_{step}" / "policy"

    def brought(self, latest: int) -> None:
        """SkyRL keeps all exports; the run has those that are wanted."""
        for step in self.saved():
            if step < latest:
                shutil.rmtree(self._folder / EXPORTS / f"global_step_{step}", ignore_errors=True)
