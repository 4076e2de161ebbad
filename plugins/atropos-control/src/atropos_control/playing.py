"""Whole episodes of an environment by a policy, for evaluations: several at a time, some with pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from atropos_cli.sdk import JsonDict, Rollout, Task, assistant
from atropos_control.making import Recipe, find_spec
from atropos_control.pictures import picture, shown
from atropos_control.policies import Policy

_AT_ONCE = 16


@dataclass
class Played:
    """An episode. success None: nothing says what one is. frames: pictures of it, where they were wanted."""

    seed: int
    reward: float = 0.0
    steps: int = 0
    ended: str = ""
    success: bool | None = None
    frames: list[Any] = field(default_factory=list)

    @property
    def words(self) -> str:
        """The episode in one line."""
        judged = {None: "", True: ", success", False: ", no success"}[self.success]
        return f"{self.steps} steps, return {self.reward:g}{judged}, {self.ended}"

    def info(self) -> JsonDict:
        """What a rollout keeps of it."""
        found: JsonDict = {"return": self.reward, "steps": self.steps, "ended": self.ended}
        return found if self.success is None else {**found, "success": self.success}


class Table:
    """Environments of a recipe, made when needed and used again. Used and closed by one thread."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._free: dict[bool, list[Any]] = {False: [], True: []}

    def take(self, *, pictures: bool = False) -> Any:
        """One that is free."""
        free = self._free[pictures]
        return free.pop() if free else self.recipe.make(pictures=pictures)

    def give_back(self, env: Any, *, pictures: bool = False) -> None:
        """It is free again."""
        self._free[pictures].append(env)

    @contextlib.contextmanager
    def lent(self, count: int, *, pictures: bool = False) -> Iterator[list[Any]]:
        """Some of them for a while; after an error they are closed, for their state is unknown."""
        envs: list[Any] = []
        try:
            envs += (self.take(pictures=pictures) for _ in range(count))
            yield envs
        except BaseException:
            for env in envs:
                with contextlib.suppress(Exception):
                    env.close()
            raise
        for env in envs:
            self.give_back(env, pictures=pictures)

    def close(self) -> None:
        """Close those that are free."""
        for free in self._free.values():
            while free:
                free.pop().close()


def play(
    table: Table,
    policy: Policy,
    seeds: Sequence[int],
    *,
    sample: bool = False,
    stop: Callable[[], bool] = lambda: False,
    before: int = 0,
) -> list[Played]:
    """An episode for each seed, in their order; those under way when stop() becomes true are left unended.

    before: how many of the same seeds were played already, so that these draw other actions.
    """
    found: list[Played] = []
    for start in range(0, len(seeds), _AT_ONCE):
        part = [Played(seed) for seed in seeds[start : start + _AT_ONCE]]
        policy.begin(_drawing(part[0].seed, before + start))
        _play(table, policy, part, sample=sample, stop=stop)
        found += part
    return found


def _drawing(seed: int, number: int) -> int:
    """From what a policy draws its actions: another one for each part of the episodes that start at the same seed."""
    return seed if number == 0 else int.from_bytes(blake2b(f"{seed}/{number}".encode(), digest_size=4).digest(), "big")


def film(table: Table, policy: Policy, seed: int, *, sample: bool = False) -> Played:
    """One episode with pictures. Raises ConfigError and whatever a renderer raises."""
    played = Played(seed)
    with table.lent(1, pictures=True) as (env,):
        policy.begin(seed)
        seen, _ = env.reset(seed=seed)
        info: Mapping[str, Any] = {}
        played.frames.append(picture(env.render()))
        while not played.ended:
            (action,) = policy.act([seen], sample=sample)
            seen, info = _step(env, played, action)
            played.frames.append(picture(env.render()))
        _judge(table.recipe, played, info)
    return played


def _play(table: Table, policy: Policy, part: Sequence[Played], *, sample: bool, stop: Callable[[], bool]) -> None:
    with table.lent(len(part)) as envs:
        seen = [env.reset(seed=one.seed)[0] for env, one in zip(envs, part, strict=True)]
        alive = list(range(len(part)))
        while alive and not stop():
            actions = policy.act([seen[place] for place in alive], sample=sample)
            for place, action in zip(list(alive), actions, strict=True):
                seen[place], info = _step(envs[place], part[place], action)
                if part[place].ended:
                    _judge(table.recipe, part[place], info)
                    alive.remove(place)


def _step(env: Any, played: Played, action: Any) -> tuple[Any, Mapping[str, Any]]:
    seen, reward, terminated, truncated, info = env.step(action)
    played.reward += float(reward)
    played.steps += 1
    played.ended = "terminated" if terminated else "truncated" if truncated else ""
    return seen, info


def _judge(recipe: Recipe, played: Played, info: Mapping[str, Any]) -> None:
    """A success is a return from the given threshold on; else what the last step calls one, else the own threshold."""
    own = find_spec(recipe.id).reward_threshold
    if recipe.threshold is None and ("is_success" in info or "success" in info):
        played.success = bool(info.get("is_success", info.get("success")))
    elif (threshold := own if recipe.threshold is None else recipe.threshold) is not None:
        played.success = played.reward >= float(threshold)


def rollout_of(task: Task, played: Played, name: str, video: str | None = None) -> Rollout:
    """The record of an episode that a policy played. name: its id. video: the file of its film."""
    info = played.info() if video is None else {**played.info(), "video": video}
    start = f"{task.info['task_name']} from the start state of seed {played.seed}."
    return Rollout(
        id=name,
        task_id=task.id,
        messages=(shown(start, played.frames), assistant(played.words)),
        rewards={"gymnasium_return": played.reward},
        reward=played.reward,
        metrics={"return": played.reward, "steps": float(played.steps)},
        info=info,
        stop_reason="step_limit" if played.ended == "truncated" and played.success is False else None,
    )
