"""Policies: what chooses the actions. A stored one is a folder with policy.json and policy.pt; nothing in it is code.

RUN/model, or RUN/checkpoints/step-N      atropos eval gymnasium:ID --policy RUN/model
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError, DataError
from atropos_cli.sdk.data import read_object

ABOUT, WEIGHTS = "policy.json", "policy.pt"
RANDOM = "random"
_FORMAT = 1


class Policy(ABC):
    """Chooses an action for each of some observations."""

    @abstractmethod
    def act(self, seen: Sequence[Any], *, sample: bool) -> list[Any]:
        """sample: draw from the distribution of actions instead of taking its mode."""

    def begin(self, seed: int) -> None:
        """Episodes of this seed begin."""


class RandomPolicy(Policy):
    """Uniform actions, the same for the same seed."""

    def __init__(self, space: Any) -> None:
        self._space = space

    def begin(self, seed: int) -> None:
        self._space.seed(seed)

    def act(self, seen: Sequence[Any], *, sample: bool) -> list[Any]:
        return [self._space.sample() for _ in seen]


class Sb3Policy(Policy):
    """A policy of stable-baselines3."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def begin(self, seed: int) -> None:
        import torch

        torch.manual_seed(seed)

    def act(self, seen: Sequence[Any], *, sample: bool) -> list[Any]:
        actions, _ = self._module.predict(stacked(seen), deterministic=not sample)
        return list(actions)


class ActorPolicy(Policy):
    """The actor that GRPO trains."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def begin(self, seed: int) -> None:
        import torch

        torch.manual_seed(seed)

    def act(self, seen: Sequence[Any], *, sample: bool) -> list[Any]:
        import torch

        with torch.no_grad():
            flat = self._actor.flat(stacked(seen), len(seen))
            actions, _ = self._actor.choose(flat, sample=sample)
        return list(self._actor.played(actions))


def stacked(seen: Sequence[Any]) -> Any:
    """Observations of several environments as one of arrays, as stable-baselines3 has them."""
    import numpy as np

    if isinstance(seen[0], dict):
        return {key: np.stack([one[key] for one in seen]) for key in seen[0]}
    if isinstance(seen[0], tuple):
        return tuple(np.stack([one[place] for one in seen]) for place in range(len(seen[0])))
    return np.stack(seen)


def check_counting(method: str, spaces: Sequence[Any]) -> None:
    """Raises ConfigError for numbered values that do not begin at 0, which stable-baselines3 takes as if they did."""
    import numpy as np

    for space in spaces:
        kind = type(space).__name__
        if kind in ("Dict", "Tuple"):
            check_counting(method, list(space.spaces.values()) if kind == "Dict" else space.spaces)
        elif kind in ("Discrete", "MultiDiscrete") and np.any(space.start):
            raise ConfigError(
                f"{method} counts values from 0, and the environment has {space}",
                hint="train grpo, or --env.wrappers MODULE:NAME that counts from 0",
            )


def sb3_class(method: str, space: Any) -> tuple[str, Any]:
    """(name, class) of the policy for observations of a space. Raises ConfigError for others."""
    from stable_baselines3 import PPO, SAC
    from stable_baselines3.common.preprocessing import is_image_space

    kind = type(space).__name__
    if kind == "Tuple":
        raise ConfigError(
            "stable-baselines3 cannot read observations that are tuples",
            hint="--env.wrappers FlattenObservation, or train grpo",
        )
    name = "MultiInputPolicy" if kind == "Dict" else "CnnPolicy" if is_image_space(space) else "MlpPolicy"
    return name, {"ppo": PPO, "sac": SAC}[method].policy_aliases[name]


def write_policy(
    folder: Path, *, method: str, env: str, layers: Sequence[int], spaces: Sequence[Any], weights: Any
) -> None:
    """Write both files. spaces: of observations and actions."""
    import torch

    seen, done = spaces
    about = {"format": _FORMAT, "method": method, "env": env, "layers": list(layers), "observations": str(seen)}
    about["actions"] = str(done)
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    torch.save(weights, folder / WEIGHTS)


def read_weights(path: Path) -> Any:
    """What torch.save wrote, tensors and plain values alone. Raises DataError."""
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise DataError(f"{path} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


def weights_for(name: str, method: str, layers: Sequence[int]) -> Any:
    """The weights in a folder, for a policy of a method to begin from. Raises DataError and ConfigError."""
    folder = Path(name)
    try:
        about = read_object(folder / ABOUT)
    except (OSError, ValueError) as error:
        raise DataError(
            f"--model {name} holds no policy to begin from: {error}",
            hint="RUN/model of a policy, or --model new for random weights",
        ) from error
    if about.get("method") != method or about.get("layers") != list(layers):
        of = f"{about.get('method')} with layers {about.get('layers')}"
        raise ConfigError(
            f"the policy in {name} is of {of}, not of {method} with {list(layers)}",
            hint="train it with its own method and --layers",
        )
    return read_weights(folder / WEIGHTS)


def load_policy(name: str, env: Any) -> Policy:
    """`random`, or the policy in a folder, for an environment. Raises DataError and ConfigError."""
    if name == RANDOM:
        return RandomPolicy(env.action_space)
    folder = Path(name)
    try:
        about = read_object(folder / ABOUT)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{name} holds no policy: {error}", hint="--policy random, RUN/model or RUN/checkpoints/step-N"
        ) from error
    method, layers = about.get("method"), about.get("layers")
    if about.get("format") != _FORMAT or not isinstance(layers, list) or not all(type(n) is int for n in layers):
        raise DataError(f"{folder / ABOUT} is of another format", hint="train the policy with this version")
    for key, space in (("observations", env.observation_space), ("actions", env.action_space)):
        if about.get(key) != str(space):
            raise ConfigError(
                f"the policy was trained with {key} {about.get(key)}, and the environment has {space}",
                hint=f"it was trained on {about.get('env')}; give the same options and wrappers",
            )
    weights = read_weights(folder / WEIGHTS)
    try:
        return _built(str(method), layers, env, weights)
    except (RuntimeError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder / WEIGHTS} does not fit {folder / ABOUT}: {str(error)[:300]}") from error


def _built(method: str, layers: list[int], env: Any, weights: Any) -> Policy:
    if method == "grpo":
        from atropos_control.actor import Actor

        actor = Actor(env.observation_space, env.action_space, layers)
        actor.load_state_dict(weights)
        return ActorPolicy(actor)
    if method not in ("ppo", "sac"):
        raise DataError(f"a policy of an unknown method {method!r}")
    check_counting(method, (env.observation_space, env.action_space))
    _, kind = sb3_class(method, env.observation_space)
    module = kind(env.observation_space, env.action_space, lambda _: 0.0, net_arch=list(layers))
    module.load_state_dict(weights)
    return Sb3Policy(module)
