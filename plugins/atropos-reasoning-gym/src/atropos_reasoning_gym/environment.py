"""The environment `reasoning-gym`: tasks of all families of the package, by seed and index.

    atropos gen reasoning-gym --families countdown --families sudoku=2 --level 1
    atropos env check reasoning-gym --limit 105          one task of each family

Task i of a family is the package's own entry i for that seed, so that figures can be compared. Everything of
the package runs in an isolated worker with a fixed hash seed: the same index gives the same task everywhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
from collections.abc import Sequence
from difflib import get_close_matches
from random import Random
from typing import Any, ClassVar

from atropos_cli.sdk import (
    ConfigError,
    DataError,
    Environment,
    Episode,
    JsonDict,
    Message,
    PluginError,
    Task,
    TaskStream,
    system,
    user,
)
from atropos_cli.sdk.isolation import IsolatedWorker, WorkerError, accept_isolation
from atropos_cli.sdk.prompts import packaged_prompt
from atropos_reasoning_gym.config import ReasoningGymConfig, split_weight
from atropos_reasoning_gym.families import GOLD_ELSEWHERE
from atropos_reasoning_gym.scoring import (
    Verdict,
    answer_tags,
    judge,
    judge_answer,
    reasoning_gym,
    set_up_request,
    started,
)

_START_S = 60.0


class ReasoningGymEpisode(Episode):
    """One reply. Its verdict becomes metrics, by family too."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._verdict: Verdict | None = None

    def reset(self) -> Sequence[Message]:
        _made(self.task)
        return self.task.prompt

    async def step(self, reply: Message) -> None:
        try:
            self._verdict = await judge(self.task, reply.text)
        except WorkerError:
            # The reward meets the same error and says so; without a verdict there are no metrics.
            self._verdict = None

    def result(self) -> JsonDict:
        info: JsonDict = {"family": self.task.info["family"], "level": self.task.info["level"]}
        if self._verdict is not None:
            info["success"] = self._verdict.score >= 1.0
            if self._verdict.refused is not None:
                info["refused"] = self._verdict.refused
        return info

    def metrics(self) -> dict[str, float]:
        if self._verdict is None:
            return {}
        family = self.task.info["family"]
        return {
            f"score_{family}": self._verdict.score,
            "answered": float(self._verdict.answer is not None),
            "refused": float(self._verdict.refused is not None),
        }


class ReasoningGymEnvironment(Environment):
    """Endless tasks of reasoning-gym: all families in turn, or chosen ones by weight."""

    name = "reasoning-gym"
    Config = ReasoningGymConfig
    rewards = (reasoning_gym, answer_tags)
    splits: ClassVar[Sequence[str]] = ("train", "test")
    prompt = packaged_prompt(__file__)
    config: ReasoningGymConfig

    def __init__(self, config: ReasoningGymConfig) -> None:
        super().__init__(config)
        self._families: list[tuple[str, float]] = []
        accept_isolation(config.isolation)
        try:
            self._version = importlib.metadata.version("reasoning-gym")
        except importlib.metadata.PackageNotFoundError:
            raise PluginError("reasoning-gym is not installed", hint="pip install reasoning-gym") from None

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Start the worker and check the options before the first task."""
        await asyncio.to_thread(self._chosen)

    def _chosen(self) -> list[tuple[str, float]]:
        """(family, weight) of each family, in a fixed order. Raises ConfigError on what the package refuses."""
        if self._families:
            return self._families
        known: dict[str, bool] = self._worker().ask_now({"do": "families"}, seconds=_START_S, fork=False)
        wanted = dict(split_weight(text) for text in self.config.families) or dict.fromkeys(known, 1.0)
        named = (*wanted, *self.config.exclude, *self.config.options)
        for name in named:
            if name not in known:
                close = get_close_matches(name, known, n=3)
                hint = f"did you mean {', '.join(close)}?" if close else f"families: {', '.join(known)}"
                raise ConfigError(f"reasoning-gym has no family {name!r}", hint=hint)
        chosen = [(name, weight) for name, weight in sorted(wanted.items()) if name not in self.config.exclude]
        if not chosen:
            raise ConfigError("no family is left", hint="leave out fewer: --exclude")
        for name, _ in chosen:
            self._check(name)
        self._families = chosen
        return chosen

    def _check(self, family: str) -> None:
        if family not in self.config.options and self.config.level is None:
            return
        try:
            self._set_up({"seed": self._seed("train"), **self._place(family, self.config.level)})
        except WorkerError as error:
            raise ConfigError(
                f"family {family!r} cannot be set up with these options: {error}",
                hint=f"see --options and --level, or leave it out: --exclude {family}",
            ) from None

    def _set_up(self, request: JsonDict) -> None:
        first = set_up_request(request)
        if first is not None:
            self._worker().ask_now(first, seconds=self.config.make_timeout_s, trusted=True)
            self._worker().ask_now(first, seconds=_START_S, fork=False)

    def _seed(self, split: str) -> int:
        seed = self.config.data_seed
        if split == "train":
            return seed
        return int.from_bytes(hashlib.sha256(f"{split}/{seed}".encode()).digest()[:4], "big") >> 1

    def _worker(self) -> IsolatedWorker:
        return started(self.config.isolation)

    def _place(self, family: str, level: int | None) -> dict[str, Any]:
        options = self.config.options.get(family, {})
        return {"family": family, "config": options, "level": level, "mode": self.config.level_mode}

    def tasks(self, split: str) -> TaskStream:
        """Endless. The splits have different seeds; train's is --data-seed itself, as the package would take it."""
        families = self._chosen()
        seed = self._seed(split)
        return TaskStream(lambda index: self._task(families, split, seed, index))

    def _pick(self, families: list[tuple[str, float]], seed: int, index: int) -> tuple[str, int]:
        """(family, index in it): in turn when all weights are the same, else drawn by weight."""
        weights = [weight for _, weight in families]
        if len(set(weights)) == 1:
            round_number, place = divmod(index, len(families))
            return families[place][0], round_number
        return Random(f"{seed}/family/{index}").choices([name for name, _ in families], weights)[0], index

    def _level(self, seed: int, index: int) -> int | None:
        config = self.config
        if config.level_every:
            raised = (config.level or 0) + index // config.level_every
            return raised if config.max_level is None else min(raised, config.max_level)
        if config.max_level is not None:
            low = min(config.level or 0, config.max_level)
            return Random(f"{seed}/level/{index}").randint(low, config.max_level)
        return config.level

    def _task(self, families: list[tuple[str, float]], split: str, seed: int, index: int) -> Task:
        family, place = self._pick(families, seed, index)
        level = self._level(seed, index)
        task_id = f"{split}-{index}-{family}"
        request = {"do": "entry", "seed": seed, "index": place, **self._place(family, level)}
        try:
            self._set_up(request)
            made = self._worker().ask_now(request, seconds=self.config.make_timeout_s, trusted=True)
        except WorkerError as error:
            # A few families search for minutes now and then. That is this task's failure, not the run's.
            info: JsonDict = {"task_name": family, "family": family, "level": level, "index": place}
            return Task(id=task_id, info={**info, "error": str(error)})
        question, answer = made["question"], made["answer"]
        return Task(
            id=task_id,
            prompt=(*self._system(), user(question)),
            answer=answer,
            info={
                "task_name": family,
                "family": family,
                "level": made["level"],
                "seed": seed,
                "index": place,
                "version": self._version,
                "config": made["config"],
                "entry": {"question": question, "answer": answer, "metadata": made["metadata"]},
                "scorer": {"timeout_s": self.config.scorer_timeout_s, "isolation": self.config.isolation},
            },
        )

    def _system(self) -> tuple[Message, ...]:
        own = self.config.system_prompt
        text = self.prompt.text("system") if own is None else own
        if self.config.thinking:
            text = f"{text}\n\n{self.prompt.text('thinking')}".strip()
        return (*((system(text),) if text else ()), *self.prompt.examples())

    def episode(self, task: Task) -> Episode:
        return ReasoningGymEpisode(task)

    async def validate(self, task: Task) -> bool | None:
        """Does the package's gold answer have its full score? None for families without one (see `families`)."""
        _made(task)
        gold = task.answer
        if gold is None:
            key = GOLD_ELSEWHERE.get(str(task.info["family"]), "")
            metadata: Any = task.info["entry"]["metadata"]  # type: ignore[index,call-overload]
            gold = metadata.get(key)
        if not isinstance(gold, str) or not gold:
            return None
        return (await judge_answer(task, gold)).score >= 1.0


def _made(task: Task) -> None:
    if "error" in task.info:
        raise DataError(f"reasoning-gym did not make this task: {task.info['error']}")
