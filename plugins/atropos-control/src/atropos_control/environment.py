"""The environment `gymnasium:ID`: an environment of Gymnasium, played in words."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, create_model

from atropos_cli.sdk import (
    Config,
    ConfigError,
    Environment,
    Episode,
    Field,
    JsonDict,
    Message,
    Task,
    TaskStream,
    user,
)
from atropos_cli.sdk.prompts import packaged_prompt
from atropos_control.describing import Actions, check_observations, known, observed

_SIMPLE = (bool, int, float, str)
_HIDDEN = frozenset({"self", "render_mode"})
_TEST_SEEDS = 1 << 30
"""Seeds of the split test begin here, those of train at 0."""


class GymnasiumConfig(Config):
    """What all environments of Gymnasium have here; arguments of the environment itself are added."""

    max_steps: int | None = Field(
        default=None, ge=1, description="Steps at most; default: the environment's own limit, or 200."
    )
    max_invalid: int = Field(
        default=3,
        ge=1,
        description="Replies without a valid action in a row after which the episode ends; its return is then at most "
        "that of random play from there.",
    )


class GymnasiumEnvironment(Environment):
    """An environment of Gymnasium, in this process: gymnasium:ID."""

    name = "gymnasium"
    Config: ClassVar[type[BaseModel]] = GymnasiumConfig
    rewards = ("gymnasium_return",)
    splits = ("train", "test")
    prompt = packaged_prompt(__file__)
    id: ClassVar[str] = ""
    arguments: ClassVar[Sequence[str]] = ()
    config: GymnasiumConfig

    def __init__(self, config: GymnasiumConfig) -> None:
        super().__init__(config)
        self._free: list[Any] = []

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Make one environment: what cannot work is said before the first task."""
        if not self.id:
            raise ConfigError("gymnasium is a prefix", hint="atropos gen gymnasium:FrozenLake-v1")
        env = self.take()
        check_observations(env.observation_space)
        Actions(env.action_space)
        self.give_back(env)

    async def close(self) -> None:
        while self._free:
            self._free.pop().close()

    def take(self) -> Any:
        """An environment that no other episode uses."""
        if self._free:
            return self._free.pop()
        import gymnasium

        given: dict[str, Any] = {
            name: getattr(self.config, name) for name in self.arguments if name in self.config.model_fields_set
        }
        steps = self.config.max_steps
        given |= {} if steps is None else {"max_episode_steps": steps}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return gymnasium.make(self.id, **given)
        except Exception as error:
            raise ConfigError(f"cannot make {self.id}: {type(error).__name__}: {error}") from error

    def give_back(self, env: Any) -> None:
        """The environment is free again."""
        self._free.append(env)

    def tasks(self, split: str) -> TaskStream:
        """Task i starts from the state that seed i gives; the chances of its steps come from the same seed."""
        first = _TEST_SEEDS if split == "test" else 0
        name = self.id.rpartition(":")[2].replace("/", "-")
        return TaskStream(
            lambda index: Task(id=f"{name}-{split}-{index:06}", info={"task_name": self.id, "seed": first + index})
        )

    def episode(self, task: Task) -> Episode:
        return GymnasiumEpisode(self, task)


class GymnasiumEpisode(Episode):
    """One episode: an observation and a reward each turn, an action from each reply."""

    def __init__(self, environment: GymnasiumEnvironment, task: Task) -> None:
        self._environment = environment
        self._seed = int(str(task.info["seed"]))
        self._name = short_name(environment.id)
        self._env: Any = None
        self._return = 0.0
        self._steps = self._invalid = self._in_a_row = 0
        self._ended = ""

    def reset(self) -> Sequence[Message]:
        self._env = self._environment.take()
        facts = known(self._name)
        self._labels = facts.get("observation", ())
        self._actions = Actions(self._env.action_space, facts.get("actions", ()))
        self._limit = None if self._env.spec.max_episode_steps else self._environment.config.max_steps or 200
        seen, _ = self._env.reset(seed=self._seed)
        about = facts.get("about", f"You control the environment {self._environment.id} of Gymnasium.").strip()
        texts = self._environment.prompt
        opening = texts.opening(about=about, actions=self._actions.words, example=self._actions.example)
        first = texts.text("first", observation=self._words(seen))
        return [*opening, user(first)]

    def step(self, reply: Message) -> Sequence[Message] | None:
        action = self._actions.read(reply.text)
        texts = self._environment.prompt
        if action is None:
            self._invalid += 1
            self._in_a_row += 1
            if self._in_a_row >= self._environment.config.max_invalid:
                self._ended = "invalid"
                self._return = min(self._return, self._at_random())
                return None
            return [user(texts.text("invalid", actions=self._actions.words))]
        self._in_a_row = 0
        seen, reward, terminated, truncated, _ = self._env.step(action)
        self._return += float(reward)
        self._steps += 1
        if terminated:
            self._ended = "terminated"
            return None
        if truncated or self._steps == self._limit:
            self._ended = "truncated"
            self.stop_reason = "step_limit"
            return None
        return [user(texts.text("turn", observation=self._words(seen), reward=f"{float(reward):g}").strip())]

    def _at_random(self) -> float:
        """The return when the rest is played at random. Where each step costs something, to stop must not pay."""
        actions, total, steps = self._env.action_space, self._return, self._steps
        actions.seed(self._seed)
        ended = False
        while not ended:
            _, reward, terminated, truncated, _ = self._env.step(actions.sample())
            total += float(reward)
            steps += 1
            ended = terminated or truncated or steps == self._limit
        return total

    def _words(self, seen: Any) -> str:
        return observed(self._env, self._name, seen, self._labels)

    def result(self) -> JsonDict:
        return {"return": self._return, "steps": self._steps, "invalid": self._invalid, "ended": self._ended}

    def metrics(self) -> dict[str, float]:
        return {"return": self._return, "steps": float(self._steps), "invalid_actions": float(self._invalid)}

    def close(self) -> None:
        if self._env is not None:
            self._environment.give_back(self._env)
            self._env = None


def short_name(full: str) -> str:
    """The name in an id: FrozenLake for module:namespace/FrozenLake-v1."""
    return full.rpartition(":")[2].rpartition("/")[2].rpartition("-v")[0]


def environment_class(rest: str) -> type[GymnasiumEnvironment]:
    """The class for an id of Gymnasium, with the environment's arguments as options. Raises ConfigError."""
    if not rest:
        return GymnasiumEnvironment
    spec = _spec(rest)
    fields = _arguments(spec)
    body = {
        "name": f"gymnasium:{rest}",
        "id": rest,
        "arguments": tuple(fields),
        "Config": create_model(f"{short_name(rest)}Config", __base__=GymnasiumConfig, **fields),
        "__doc__": f"{rest} of Gymnasium, played in words.",
        "__module__": __name__,
    }
    return type(short_name(rest) or "Gymnasium", (GymnasiumEnvironment,), body)


def _spec(name: str) -> Any:
    import gymnasium

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        raise ConfigError(
            f"Gymnasium has no environment {name!r} here: {error}",
            hint="python -c 'import gymnasium; gymnasium.pprint_registry()' lists those that are installed",
        ) from error


def _arguments(spec: Any) -> dict[str, Any]:
    """Arguments of the environment that a flag can give: those with a default that is a number, a text or a switch."""
    from gymnasium.envs.registration import load_env_creator
    from gymnasium.error import Error

    try:
        make = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
        found = inspect.signature(make).parameters.values()
    except (Error, ImportError, AttributeError, TypeError, ValueError):
        return {}  # making it raises the error
    fields: dict[str, Any] = {}
    for item in found:
        default = spec.kwargs.get(item.name, item.default)
        simple = isinstance(default, _SIMPLE) and item.name.isidentifier() and not item.name.startswith("_")
        if simple and item.name not in _HIDDEN | set(GymnasiumConfig.model_fields):
            about = Field(default=default, description=f"Argument {item.name} of the environment.")
            fields[item.name] = (type(default), about)
    return fields
