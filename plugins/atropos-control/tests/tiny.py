"""Environments of a few steps for the tests: gymnasium:tiny:Right-v0 and gymnasium:tiny:Line-v0."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Right(gymnasium.Env):  # type: ignore[type-arg]
    """One step: the action that the observation names earns 1."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._wanted = int(self.np_random.integers(3))
        return self._wanted, {}

    def step(self, action: Any) -> Any:
        return self._wanted, float(action == self._wanted), True, False, {}


class Line(gymnasium.Env):  # type: ignore[type-arg]
    """Five steps along a line towards a goal, rewarded 0 near it and -1 elsewhere."""

    _part = spaces.Box(-5, 5, (1,), np.float64)
    observation_space = spaces.Dict({"observation": _part, "achieved_goal": _part, "desired_goal": _part})
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._at, self._goal = np.zeros(1), self.np_random.uniform(-2, 2, 1)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self._at = self._at + action
        reward = float(self.compute_reward(self._at, self._goal, {}))
        return self._seen(), reward, False, False, {"is_success": reward == 0}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -(np.linalg.norm(achieved - desired, axis=-1) > 0.3).astype(float)

    def _seen(self) -> Any:
        return {"observation": self._at.copy(), "achieved_goal": self._at.copy(), "desired_goal": self._goal.copy()}


gymnasium.register("Right-v0", entry_point="tiny:Right", max_episode_steps=1, reward_threshold=1.0)
gymnasium.register("Line-v0", entry_point="tiny:Line", max_episode_steps=5)
