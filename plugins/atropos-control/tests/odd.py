"""Environments that are odd or broken, for the tests: gymnasium:odd:From1-v0 and others.

Late ones are well behaved in the split test, which evaluations play, and break when they are trained on.
"""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_TEST_SEEDS = 1 << 30


class Plain(gymnasium.Env[Any, Any]):
    """Five steps with a reward of 1 each; it has no pictures."""

    observation_space: Any = spaces.Box(-1, 1, (2,), np.float32)
    action_space: Any = spaces.Box(-1, 1, (1,), np.float32)
    fault = "none"
    _held_out = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._held_out = self._held_out if seed is None else seed >= _TEST_SEEDS
        self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        fault = "none" if self._held_out or self._steps < 3 else self.fault
        if fault == "raise":
            raise RuntimeError("the simulator broke")
        if fault == "leave":
            raise SystemExit(4)
        if fault == "die":
            os._exit(9)
        seen = self._seen() * np.nan if fault == "nan seen" else self._seen()
        return seen, float("nan") if fault == "nan reward" else 1.0, self._steps >= 5, False, {}

    def _seen(self) -> Any:
        return self.observation_space.sample()


class From1(Plain):
    action_space = spaces.Discrete(3, start=1)


class SeenFrom1(Plain):
    observation_space = spaces.Dict({"a": spaces.Discrete(3, start=1)})


class Nested(Plain):
    observation_space = spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)})})


class Stamp(Plain):
    """Pictures that are too small for the layers of pictures."""

    observation_space = spaces.Box(0, 255, (20, 20, 3), np.uint8)


class NoPicture(Plain):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def render(self) -> Any:
        return None


class FrozenLakeOfMine(Plain):
    """Called like one of Gymnasium's, and another game."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(4)


for _kind in (FrozenLakeOfMine, Plain, From1, SeenFrom1, Nested, Stamp, NoPicture):
    gymnasium.register(f"{_kind.__name__}-v0", entry_point=_kind)
gymnasium.register("mine/Taxi-v0", entry_point=FrozenLakeOfMine)
for _fault in ("nan reward", "nan seen", "raise", "leave", "die"):
    _made = type("Late", (Plain,), {"fault": _fault})
    gymnasium.register(f"Late-{_fault.replace(' ', '-')}-v0", entry_point=_made)
