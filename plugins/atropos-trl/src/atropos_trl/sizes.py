"""Batch arithmetic: from prompts and group size to TRL's numbers, with the rule in words when it does not come out."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.training import TrainingProfile, TrainPlan

from .common.machine import same_everywhere
from .config import TrlConfig
from .options import generations

MOST_ROWS = 32
"""Computed at a time where nothing is known of the GPU."""


@dataclass(frozen=True)
class Sizes:
    """Rows are completions for grpo, data rows for the other methods."""

    prompts: int
    generations: int
    world: int
    micro: int
    accumulation: int

    @property
    def rows(self) -> int:
        """Rows of one optimiser step on all processes."""
        return self.prompts * self.generations

    def describe(self) -> JsonDict:
        """For --dry-run: the numbers and the sum in words."""
        processes = "process" if self.world == 1 else "processes"
        return {
            "rows_per_step": self.rows,
            "num_generations": self.generations,
            "per_device_train_batch_size": self.micro,
            "gradient_accumulation_steps": self.accumulation,
            "processes": self.world,
            "batch": f"{self.prompts} prompts x {self.generations} = {self.rows} rows a step = "
            f"{self.world} {processes} x {self.accumulation} micro batches x {self.micro} rows",
        }


def batch_sizes(config: TrlConfig, plan: TrainPlan, *, world: int | None = None, most: int = MOST_ROWS) -> Sizes:
    """Raises ConfigError with the rule, the numbers and the nearest values that fit.

    world: number of processes; None: as WORLD_SIZE says (torchrun and accelerate set it). most: rows at a time.
    """
    world = world or int(os.environ.get("WORLD_SIZE", "1"))
    prompts, size = plan.prompts_per_step, 1
    if plan.method == "grpo":
        size = generations(config, plan)
        if size < 2:
            raise ConfigError(
                f"group size {size}: an advantage compares at least 2 completions of a prompt",
                hint="--group-size 4 (8 is usual)",
            )
    if prompts % world:
        below = prompts // world * world
        near = _nearest(prompts, [n for n in (below, below + world) if n])
        raise ConfigError(
            f"--prompts-per-step {prompts} cannot be split over {world} processes: whole prompts go to each",
            hint=f"--prompts-per-step {near}",
        )
    local = prompts * size // world
    divisors = _divisors(local)
    micro = config.per_device_train_batch_size
    if micro is None:
        micro = max(n for n in divisors if n <= most)
    elif local % micro:
        per = "" if world == 1 else f" / {world} processes"
        what = f"{prompts} prompts x {size} completions{per}"
        raise ConfigError(
            f"--per-device-train-batch-size {micro} does not divide the {local} rows of a step ({what}); "
            f"rows are counted in completions",
            hint=f"--per-device-train-batch-size {_nearest(micro, divisors)}"
            + _other_prompts(micro, prompts, size, world),
        )
    return Sizes(prompts, size, world, micro, local // micro)


def most_rows(config: TrlConfig, profile: TrainingProfile) -> int:
    """By the GPU, unless other hosts may have another one, or the loss is a mean over the rows of a micro-batch."""
    return profile.rows if config.algorithm != "bnpo" and same_everywhere() else MOST_ROWS


def _divisors(number: int) -> list[int]:
    """In ascending order."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _nearest(wanted: int, fitting: Sequence[int]) -> str:
    """The fitting values on both sides of the wanted one, in words."""
    below = [n for n in fitting if n < wanted]
    above = [n for n in fitting if n > wanted]
    return " or ".join(str(n) for n in [*below[-1:], *above[:1]])


def _other_prompts(micro: int, prompts: int, size: int, world: int) -> str:
    """Numbers of prompts with which the wanted micro batch would fit: whole numbers of micro batches per process."""
    unit = world * micro // math.gcd(size, micro)
    below = (prompts - 1) // unit * unit
    return f", or --prompts-per-step {_nearest(prompts, [n for n in (below, below + unit, below + 2 * unit) if n])}"
