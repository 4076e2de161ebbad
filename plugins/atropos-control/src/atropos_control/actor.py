"""The actor that GRPO trains: observations of any space as one vector, a small network, a distribution of actions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from atropos_cli.sdk import ConfigError

_SCALE_LIMIT = 10.0


def width(space: Any) -> int:
    """How many numbers an observation has. Raises ConfigError for spaces that have no fixed number."""
    from gymnasium.spaces.utils import flatdim

    kind = type(space).__name__
    if kind in ("Dict", "Tuple"):
        parts = space.spaces.values() if kind == "Dict" else space.spaces
        if any(type(part).__name__ in ("Dict", "Tuple") for part in parts):
            raise ConfigError(
                f"observations of {space} are nested more than once", hint="--env.wrappers FlattenObservation"
            )
    try:
        return int(flatdim(space))
    except (NotImplementedError, ValueError) as error:
        raise ConfigError(f"observations of {space} have no fixed number of numbers") from error


def flattened(space: Any, seen: Any, count: int) -> Any:
    """A batch of observations, as a vector environment gives them, as an array of one row each."""
    import numpy as np

    kind = type(space).__name__
    if kind == "Dict":
        parts = [flattened(space.spaces[key], seen[key], count) for key in space.spaces]
        return np.concatenate(parts, axis=1)
    if kind == "Tuple":
        return np.concatenate(
            [flattened(one, part, count) for one, part in zip(space.spaces, seen, strict=True)], axis=1
        )
    if kind == "Discrete":
        places = np.asarray(seen).reshape(count).astype(int) - int(space.start)
        return np.eye(int(space.n), dtype=np.float32)[places]
    if kind in ("Box", "MultiBinary"):
        return np.asarray(seen, dtype=np.float32).reshape(count, -1)
    from gymnasium.spaces.utils import flatten

    return np.stack([flatten(space, one) for one in seen]).astype(np.float32)


def Actor(seen: Any, done: Any, layers: Sequence[int]) -> Any:  # noqa: N802 - a class that needs torch
    """A new actor for the spaces of observations and actions. Raises ConfigError for actions it cannot choose."""
    import torch
    from torch import nn

    kind = type(done).__name__
    if kind not in ("Discrete", "Box"):
        raise ConfigError(f"GRPO chooses Discrete and Box actions, not {done}", hint="train ppo has more kinds")
    size = int(done.n) if kind == "Discrete" else math.prod(done.shape)

    class _Actor(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            inputs = width(seen)
            parts: list[nn.Module] = []
            for length in layers:
                parts += [nn.Linear(inputs, length), nn.Tanh()]
                inputs = length
            last = nn.Linear(inputs, size)
            nn.init.orthogonal_(last.weight, 0.01)
            nn.init.zeros_(last.bias)
            self.body = nn.Sequential(*parts, last)
            self.log_std = nn.Parameter(torch.zeros(size)) if kind == "Box" else None
            self.register_buffer("mean", torch.zeros(width(seen)))
            self.register_buffer("square", torch.ones(width(seen)))
            self.register_buffer("count", torch.tensor(0.0))

        def flat(self, batch: Any, count: int) -> Any:
            return torch.as_tensor(flattened(seen, batch, count))

        def learn_scale(self, flat: Any) -> None:
            """Take more observations into the mean and spread by which inputs are scaled."""
            count = self.count + len(flat)
            self.mean += (flat.mean(0) - self.mean) * (len(flat) / count)
            self.square += ((flat**2).mean(0) - self.square) * (len(flat) / count)
            self.count.copy_(count)

        def distribution(self, flat: Any) -> Any:
            spread = (self.square - self.mean**2).clamp(min=1e-6).sqrt()
            out = self.body(((flat - self.mean) / spread).clamp(-_SCALE_LIMIT, _SCALE_LIMIT))
            if self.log_std is None:
                return torch.distributions.Categorical(logits=out)
            return torch.distributions.Independent(torch.distributions.Normal(out, self.log_std.exp()), 1)

        def choose(self, flat: Any, *, sample: bool) -> tuple[Any, Any]:
            """(actions, their log-probabilities)"""
            found = self.distribution(flat)
            actions = found.sample() if sample else found.mode
            return actions, found.log_prob(actions)

        def played(self, actions: Any) -> Any:
            return in_bounds(done, actions.numpy())

    return _Actor()


def in_bounds(space: Any, values: Any) -> Any:
    """Actions as the environment takes them: 0 and 1 of ours are the middle and the upper bound of a Box."""
    import numpy as np

    if type(space).__name__ == "Discrete":
        return values + int(space.start)
    finite = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = np.where(finite, space.low, -1.0), np.where(finite, space.high, 1.0)
    values = (low + high) / 2 + values.reshape(-1, *space.shape) * (high - low) / 2
    return np.clip(values, space.low, space.high).astype(space.dtype)
