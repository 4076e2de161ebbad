"""What the three methods have in common for the trainer: a training step at a time, and a state that is saved."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_control.making import Recipe
from atropos_control.policies import Policy, read_weights

STATE = "state.pt"


@dataclass(frozen=True)
class Job:
    """What a learner is made of. steps: of the whole run, for rates that fall. stop: is the run asked to stop?"""

    method: str
    recipe: Recipe
    options: Mapping[str, Any]
    seed: int
    steps: int
    stop: Callable[[], bool]
    groups: int = 1
    group_size: int = 1
    advantage: str = "grpo"

    @property
    def processes(self) -> bool:
        """Is each environment in a process of its own?"""
        wanted = self.options.get("subprocesses")
        return bool(wanted) if wanted is not None else self.options["num_envs"] > 1 and not self.recipe.cheap


class Learner(ABC):
    """One method at work. step: training steps done; env_steps: steps of environments."""

    step = 0
    env_steps = 0

    @abstractmethod
    def update(self) -> dict[str, float]:
        """One training step: play, then learn. Returns its numbers."""

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """The policy as it is now."""

    @property
    @abstractmethod
    def weights(self) -> Any:
        """The policy's weights, as they are stored."""

    @abstractmethod
    def begin_from(self, weights: Any) -> None:
        """Take weights of an earlier run."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What the next step needs beside the weights: tensors and plain values."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Undo state()."""

    @abstractmethod
    def close(self) -> None:
        """End the environments."""

    def write(self, folder: Path) -> None:
        """All of the state, with the states of the random number generators."""
        import torch

        counts = {"step": self.step, "env_steps": self.env_steps}
        torch.save({**counts, "random": random_state(), "weights": self.weights, **self.state()}, folder / STATE)

    def read(self, folder: Path) -> None:
        """Undo write(). Environments begin new episodes. Raises DataError."""
        state = read_weights(folder / STATE)
        self.step, self.env_steps = int(state["step"]), int(state["env_steps"])
        self.restore(state)
        set_random_state(state["random"])


def random_state() -> dict[str, Any]:
    """Of this process: torch, numpy and the standard library, as tensors and plain values."""
    import numpy as np
    import torch

    numbers: Any = np.random.get_state()
    _, keys, position, gauss, cached = numbers
    return {
        "torch": torch.get_rng_state(),
        "numpy": [torch.from_numpy(keys.astype("int64")), int(position), int(gauss), float(cached)],
        "python": [list(part) if isinstance(part, tuple) else part for part in random.getstate()],
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Undo random_state()."""
    import numpy as np
    import torch

    torch.set_rng_state(state["torch"])
    keys, position, gauss, cached = state["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype("uint32"), position, gauss, cached))
    version, inner, following = state["python"]
    random.setstate((version, tuple(inner), following))


def played_numbers(returns: Sequence[float], lengths: Sequence[int], successes: Sequence[bool]) -> dict[str, float]:
    """Means over the episodes that ended in a step."""
    found = {"episodes": float(len(returns))}
    if returns:
        found |= {"reward": math.fsum(returns) / len(returns), "episode_steps": sum(lengths) / len(lengths)}
    if successes:
        found["success"] = sum(successes) / len(successes)
    return found
