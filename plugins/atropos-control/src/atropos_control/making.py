"""Environments of Gymnasium, made by id with arguments, a limit of steps and wrappers; alone, or many in processes.

MuJoCo renders without a screen by EGL or OSMesa; `headless` chooses one before the first environment is made.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import importlib
import importlib.util
import io
import json
import math
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.training import TrainerError

_REGISTERING = ("gymnasium_robotics",)
"""Modules that register environments when they are imported; Gymnasium finds none of them by itself."""
_ROBOTS = ("Fetch", "Hand", "Adroit", "FrankaKitchen", "PointMaze", "AntMaze")
_STEPS = 200
_CHEAP = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")


@dataclass(frozen=True)
class Recipe:
    """All that makes one environment. max_steps None: the environment's own limit, or 200.

    wrappers: names in gymnasium.wrappers, or MODULE:NAME, each with its arguments behind it as JSON: NAME{"x": 1}.
    """

    id: str
    arguments: tuple[tuple[str, Any], ...] = ()
    max_steps: int | None = None
    wrappers: tuple[str, ...] = ()
    threshold: float | None = None
    """Return from which an episode is a success, where the environment does not say so itself."""

    def make(self, *, pictures: bool = False, policy: bool = True) -> Any:
        """The environment, whose steps raise ValueError for numbers from which nothing can be learnt.

        pictures: its render() gives frames. policy: its observations are for one. Raises ConfigError.
        """
        import gymnasium

        spec = find_spec(self.id)
        limit = self.max_steps or spec.max_episode_steps or _STEPS
        if pictures:
            headless()
        mode: dict[str, Any] = {"render_mode": "rgb_array"} if pictures else {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                env = gymnasium.make(self.id, max_episode_steps=limit, **mode, **dict(self.arguments))
        except Exception as error:
            raise ConfigError(
                f"cannot make {self.id}: {type(error).__name__}: {error}", hint=_missing(error)
            ) from error
        for text in self.wrappers:
            env = _wrapped(env, text)
        return _checked(env, self.id, policy=policy)

    @property
    def cheap(self) -> bool:
        """Are its steps cheaper than asking another process for one?"""
        entry = find_spec(self.id).entry_point
        return isinstance(entry, str) and entry.startswith(_CHEAP)


def register() -> None:
    """Have the packages register their environments that do so when they are imported."""
    for module in _REGISTERING:
        if module not in sys.modules and importlib.util.find_spec(module) is not None:
            with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):  # it greets with remarks
                warnings.simplefilter("ignore")
                importlib.import_module(module)


def find_spec(name: str) -> Any:
    """Gymnasium's entry for an id. Raises ConfigError."""
    import gymnasium

    register()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module, colon, rest = name.rpartition(":")
            if colon:
                _import(module)
            return gymnasium.spec(rest)
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        hint = "python -c 'import gymnasium; gymnasium.pprint_registry()' lists those that are installed"
        if found := sorted(one for one in gymnasium.registry if one.rpartition("-v")[0] == rest):
            hint = f"with its version: {', '.join(found)}"
        if name.startswith(_ROBOTS) and importlib.util.find_spec(_REGISTERING[0]) is None:
            hint = "pip install 'atropos-control[robotics]'"
        raise ConfigError(f"Gymnasium has no environment {name!r} here: {error}", hint=hint) from error


def _import(module: str) -> None:
    """Import a user's module, which may do anything. Raises ImportError or ConfigError."""
    if module.startswith("."):
        raise ImportError(f"{module!r} does not name a module")
    try:
        importlib.import_module(module)
    except ImportError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"the module {module!r}, which registers environments, cannot be imported: {told(error)}",
            hint=f"python -c 'import {module}' shows where",
        ) from error


def told(error: BaseException) -> str:
    """An exception of somebody else's code in a line."""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    return f"{type(error).__name__}: {error}"


def _checked(env: Any, name: str, *, policy: bool) -> Any:
    """The environment, which raises ValueError for a reward that is not finite, and for NaN that a policy sees.

    One such number makes all weights NaN: some learners then fail, others continue without a word.
    """
    import gymnasium

    class Checked(gymnasium.Wrapper):  # type: ignore[misc]
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            seen, info = self.env.reset(seed=seed, options=options)
            self._check(seen)
            return seen, info

        def step(self, action: Any) -> Any:
            seen, reward, terminated, truncated, info = self.env.step(action)
            if not _is_finite(reward):
                raise ValueError(f"{name} gave the reward {reward!r}, which is not a finite number")
            self._check(seen)
            return seen, reward, terminated, truncated, info

        def _check(self, seen: Any) -> None:
            if policy and _has_nan(seen):
                raise ValueError(f"{name} gave an observation with NaN: {seen}")

    return Checked(env)


def _is_finite(reward: Any) -> bool:
    try:
        return math.isfinite(reward)
    except (TypeError, ValueError, OverflowError):
        return False


def _has_nan(seen: Any) -> bool:
    if isinstance(seen, dict):
        return any(map(_has_nan, seen.values()))
    if isinstance(seen, tuple):
        return any(map(_has_nan, seen))
    kind = getattr(getattr(seen, "dtype", None), "kind", None)
    return kind == "f" and bool((seen != seen).any())


def _missing(error: Exception) -> str | None:
    text = str(error)
    if "mujoco" in text.casefold() or isinstance(error, AssertionError):
        return (
            "pip install 'atropos-control[robotics]' (MuJoCo is capped at 3.3.7: newer ones break Gymnasium-Robotics)"
        )
    return "pip install 'atropos-control[train]'" if "pygame" in text.casefold() else None


def _wrapped(env: Any, text: str) -> Any:
    name, brace, rest = text.partition("{")
    module, _, attribute = name.strip().rpartition(":")
    try:
        arguments = json.loads(brace + rest) if brace else {}
        wrapper = getattr(importlib.import_module(module or "gymnasium.wrappers"), attribute)
        return wrapper(env, **arguments)
    except Exception as error:
        raise ConfigError(
            f"wrapper {text!r} cannot be used: {type(error).__name__}: {error}",
            hint='a name in gymnasium.wrappers or MODULE:NAME, with arguments as NAME{"key": value}',
        ) from error


class _Maker:
    """Makes one environment in the process of its own, which leaves signals to the one that trains."""

    def __init__(self, recipe: Recipe, *, seeded: bool, apart: bool) -> None:
        self._recipe, self._seeded, self._apart = recipe, seeded, apart

    def __call__(self) -> Any:
        from stable_baselines3.common.monitor import Monitor

        if self._apart:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
        env = self._recipe.make()
        if self._apart:
            env = _telling(env)
        return seeded(env) if self._seeded else Monitor(env)


FAILED = "atropos_failed"
"""Key of a step's info: what the environment raised in its process."""


def _telling(env: Any) -> Any:
    """The environment in a process of its own: its exceptions are in the info of its steps, as FAILED.

    Else its process prints the traceback and ends, and the one that trains learns only that it is gone.
    """
    import gymnasium

    class Telling(gymnasium.Wrapper):  # type: ignore[misc]
        _failed: str | None = None

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            try:
                return self.env.reset(seed=seed, options=options)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - in the info of the next step
                self._failed = told(error)
                return self.observation_space.sample(), {}

        def step(self, action: Any) -> Any:
            if self._failed is None:
                try:
                    return self.env.step(action)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - in the info
                    self._failed = told(error)
            return self.observation_space.sample(), 0.0, False, False, {FAILED: self._failed}

    return Telling(env)


def check_infos(infos: Sequence[Any]) -> None:
    """Raises TrainerError where an environment in a process of its own failed."""
    if (text := next((info[FAILED] for info in infos if FAILED in info), None)) is not None:
        raise TrainerError(f"an environment failed: {text}", hint="--no-subprocesses --debug shows where")


def close_vector(envs: Any) -> None:
    """End the environments and their processes, also where some of them are gone."""
    try:
        envs.close()
    except (EOFError, OSError):
        for process in getattr(envs, "processes", ()):
            process.kill()


def vector(recipe: Recipe, count: int, *, processes: bool, starts: bool = False) -> Any:
    """`count` environments that step together, each in a process of its own or all in this one.

    starts: each begins its next episode from the seed that its method next_start() was given.
    """
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    makers = [_Maker(recipe, seeded=starts, apart=processes) for _ in range(count)]
    if not processes:
        return DummyVecEnv(makers)
    import multiprocessing

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = ["stable_baselines3.common.vec_env.subproc_vec_env", "atropos_control.preload"]
        multiprocessing.set_forkserver_preload(modules)
        return SubprocVecEnv(makers, start_method="forkserver")


def seeded(env: Any) -> Any:
    """The environment with a method next_start(seed): its next reset begins from that seed's start state."""
    import gymnasium

    class Starts(gymnasium.Wrapper):  # type: ignore[misc]
        _seed: int | None = None

        def next_start(self, seed: int) -> None:
            self._seed = seed

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return self.env.reset(seed=self._seed if seed is None else seed, options=options)

    return Starts(env)


def headless() -> None:
    """Choose how MuJoCo renders where there is no screen, unless MUJOCO_GL says so. Before it is imported."""
    if os.environ.get("MUJOCO_GL") or os.environ.get("DISPLAY") or not sys.platform.startswith("linux"):
        return
    if (found := renderer()) is not None:
        os.environ["MUJOCO_GL"] = found
        os.environ.setdefault("PYOPENGL_PLATFORM", found)
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def renderer() -> str | None:
    """egl or osmesa, whose library is installed; None: neither."""
    libraries: Sequence[tuple[str, str]] = (("egl", "EGL"), ("osmesa", "OSMesa"))
    return next((name for name, library in libraries if ctypes.util.find_library(library)), None)
