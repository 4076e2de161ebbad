"""verl while it runs: how it is started, its names of numbers, and where its checkpoints are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from atropos_cli.sdk.distributed import Running, number_in, numbered


class VerlRunning(Running):
    """See Running."""

    package: ClassVar[str] = "verl"
    main: ClassVar[Sequence[str]] = ("-m", "verl.trainer.main_ppo")
    variables: ClassVar[Mapping[str, str]] = {"HYDRA_FULL_ERROR": "1"}
    metrics_variable: ClassVar[str] = "VERL_FILE_LOGGER_PATH"
    names: ClassVar[Mapping[str, str]] = {
        "actor/pg_loss": "loss",
        "actor/grad_norm": "grad_norm",
        "actor/kl_loss": "kl",
        "actor/entropy": "entropy",
        "actor/lr": "learning_rate",
        "actor/pg_clipfrac": "clip_ratio",
        "critic/score/mean": "reward",
        "response_length/mean": "completions/mean_length",
        "response_length/max": "completions/max_length",
        "response_length/clip_ratio": "completions/clipped_ratio",
        "num_turns/mean": "num_turns",
        "perf/throughput": "tokens_per_second",
        "timing_s/step": "step_time",
    }
    marks: ClassVar[frozenset[str]] = frozenset({"actor/pg_loss", "critic/score/mean"})
    evaluation: ClassVar[str] = "val-"
    ignored: ClassVar[tuple[str, ...]] = ("training/",)

    def latest(self) -> int:
        """verl names the last one when it has written it."""
        return number_in(self._folder / "checkpoints" / "latest_checkpointed_iteration.txt")

    def saved(self) -> list[int]:
        """See Running."""
        return numbered(self._folder / "checkpoints", "global_step_")

    def weights(self, step: int) -> Path:
        """See Running."""
        actor = self._folder / "checkpoints" / f"global_step_{step}" / "actor"
        adapter = actor / "lora_adapter"
        return adapter if adapter.is_dir() else actor / "huggingface"
