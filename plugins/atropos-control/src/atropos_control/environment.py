"""The environment `gymnasium:ID`: an environment of Gymnasium, played in words, or by a policy with --policy."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, create_model, field_validator

from atropos_cli.sdk import (
    Config,
    ConfigError,
    Environment,
    Episode,
    Field,
    GroupContext,
    JsonDict,
    Message,
    ScoredGroup,
    Task,
    TaskStream,
    user,
)
from atropos_cli.sdk.data import home
from atropos_cli.sdk.prompts import packaged_prompt
from atropos_control.describing import Actions, check_observations, known, observed
from atropos_control.making import Recipe, find_spec, told
from atropos_control.pictures import write_film
from atropos_control.playing import Played, Table, film, play, rollout_of
from atropos_control.policies import RANDOM, Policy, load_policy

_log = logging.getLogger(__name__)

PREFIX = "gymnasium"

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
    wrappers: tuple[str, ...] = Field(
        default=(),
        description="Wrapper around the environment, repeatable, the inner ones first: a name in gymnasium.wrappers or "
        'MODULE:NAME, with arguments as NAME{"key": value}.',
    )
    threshold: float | None = Field(
        default=None, description="Return from which an episode of a policy is a success; default: the environment's."
    )
    policy: str | None = Field(
        default=None, description="Play by a policy instead of a language model: random, RUN/model or a checkpoint."
    )
    stochastic: bool = Field(default=False, description="With --policy: draw actions instead of taking the likeliest.")
    videos: int = Field(default=1, ge=0, description="With --policy: film the first episode of the first N tasks.")
    video_dir: Path | None = Field(default=None, description="With --policy: keep the films in this folder as well.")

    @field_validator("policy")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        return value if value in (None, RANDOM) else str(Path(home(value)).absolute())


class GymnasiumEnvironment(Environment):
    """An environment of Gymnasium, in this process: gymnasium:ID."""

    name = "gymnasium"
    Config: ClassVar[type[BaseModel]] = GymnasiumConfig
    rewards = ("gymnasium_return",)
    splits = ("train", "test")
    without_model: ClassVar[Mapping[str, str]] = {"policy": "policy"}
    trainer: ClassVar[str | None] = "control"
    prompt = packaged_prompt(__file__)
    id: ClassVar[str] = ""
    arguments: ClassVar[Sequence[str]] = ()
    config: GymnasiumConfig

    def __init__(self, config: GymnasiumConfig) -> None:
        super().__init__(config)
        given = {name: getattr(config, name) for name in self.arguments if name in config.model_fields_set}
        self.recipe = Recipe(self.id, tuple(given.items()), config.max_steps, config.wrappers, config.threshold)
        self._free: list[Any] = []
        self._films = config.videos
        self._table = Table(self.recipe)
        self._policy: Policy | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="policy")
        """Where policies play: a renderer is used by the thread that made it."""
        if config.policy is not None:  # not in the class: by a language model it is an environment as any other
            self.roll_group = self._by_policy  # type: ignore[method-assign]

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Make one environment: what cannot work is said before the first task."""
        if not self.id:
            raise ConfigError("gymnasium is a prefix", hint="atropos gen gymnasium:FrozenLake-v1")
        if self.config.policy is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._load, self.config.policy)
            return
        env = self.take()
        check_observations(env.observation_space)
        Actions(env.action_space)
        self.give_back(env)

    async def close(self) -> None:
        while self._free:
            self._free.pop().close()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._table.close)
        self._thread.shutdown(wait=False)

    def take(self) -> Any:
        """An environment that no other episode uses."""
        if self._free:
            return self._free.pop()
        return self.recipe.make(policy=False)

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

    async def _by_policy(self, task: Task, context: GroupContext) -> AsyncIterator[ScoredGroup]:
        loop = asyncio.get_running_loop()
        played = await loop.run_in_executor(self._thread, self._play, task, context.group_size)
        rollouts = []
        for number, one in enumerate(played):
            video = None
            if one.frames and self.config.video_dir is not None:
                video = str(write_film(one.frames, self.config.video_dir / f"{task.id}-{number}"))
            rollouts.append(rollout_of(task, one, f"{context.group_id}.{number}", video))
        yield context.group(task, await context.score(task, rollouts))

    def _load(self, name: str) -> None:
        env = self._table.take()
        self._policy = load_policy(name, env)
        self._table.give_back(env)

    def _play(self, task: Task, count: int) -> list[Played]:
        assert self._policy is not None, "open() loads it"
        seed, sample = int(str(task.info["seed"])), self.config.stochastic
        found = []
        if seed % _TEST_SEEDS < self._films:
            try:
                found.append(film(self._table, self._policy, seed, sample=sample))
            except Exception as error:  # noqa: BLE001 - a renderer may raise anything; the episode is played without it
                self._films = 0
                _log.warning("no videos: %s (atropos doctor)", told(error))
        rest = [seed] * (count - len(found))
        return found + play(self._table, self._policy, rest, sample=sample, before=len(found))


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
        plain = self._env.unwrapped
        if not type(plain).__module__.startswith("gymnasium.envs."):
            self._name = ""  # somebody's own one, which is only called so
        facts = known(self._name)
        self._labels = facts.get("observation", ())
        if self._env.observation_space != plain.observation_space:
            self._name, self._labels = "", ()  # a wrapper shows something else
        self._actions = Actions(self._env.action_space, facts.get("actions", ()))
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
        if truncated:
            self._ended = "truncated"
            self.stop_reason = "step_limit"
            return None
        return [user(texts.text("turn", observation=self._words(seen), reward=f"{float(reward):g}").strip())]

    def _at_random(self) -> float:
        """The return when the rest is played at random. Where each step costs something, to stop must not pay."""
        actions, total = self._env.action_space, self._return
        actions.seed(self._seed)
        ended = False
        while not ended:
            _, reward, terminated, truncated, _ = self._env.step(actions.sample())
            total += float(reward)
            ended = terminated or truncated
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
    spec = find_spec(rest)
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


def recipe_of(name: str, options: Mapping[str, Any]) -> Recipe:
    """How the environment of an id is made under the options that a plan has. Raises ConfigError."""
    cls = environment_class(name)
    config: Any = cls.Config.model_validate(options)
    return cls(config).recipe
