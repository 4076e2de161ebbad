"""The environment `verifiers:NAME`: rollouts of an environment of verifiers, sampled by the engine.

Its process runs with the rights of the user, as when the environment is evaluated by verifiers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from atropos_cli.sdk import (
    ConfigError,
    DataError,
    Environment,
    GroupContext,
    Rollout,
    ScoredGroup,
    Task,
    TaskStream,
)
from atropos_cli.sdk.foreign import (
    Data,
    Dialect,
    EngineModel,
    Family,
    ForeignFailed,
    ForeignProcess,
    chosen,
    describe,
    known,
    process_class,
    shared_prompt,
)
from atropos_cli.sdk.isolation import WorkerError
from atropos_verifiers.config import BridgeConfig
from atropos_verifiers.rollouts import failed, rollouts_of
from atropos_verifiers.source import FROM_04, check_source, installs, module_of

PACKAGES = ("verifiers", "openai", "datasets")
DIALECT = Dialect("verifiers", Path(__file__).with_name("worker.py"), PACKAGES)
SPLITS = {"before 0.4": ("train", "test")}


class VerifiersEnvironment(Environment):
    """An environment of verifiers, run unmodified in a process of its own: verifiers:NAME."""

    name = "verifiers"
    Config: ClassVar[type[BaseModel]] = BridgeConfig
    rewards = ("verifiers_reward",)
    splits: ClassVar[Sequence[str]] = ("train",)
    source: ClassVar[str] = ""
    python: ClassVar[str] = ""
    own_values: ClassVar[Data] = {}
    config: BridgeConfig

    def __init__(self, config: BridgeConfig) -> None:
        super().__init__(config)
        self._process: ForeignProcess | None = None
        self._about: Data = {}

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Start the process and make the environment in it."""
        if not self.source:
            raise ConfigError("verifiers is a prefix", hint="atropos env add verifiers NAME --from SOURCE")
        self._process = ForeignProcess(DIALECT, self.python, self._settings(seed))
        hello = await self._process.open()
        self._about = hello["about"]

    def _settings(self, seed: int) -> Data:
        given = chosen(self.config, BridgeConfig, self.own_values)
        options = {"config": given, "args": self.config.args, "harness": self.config.harness}
        return {**_settings(self.source), **options, "mode": "run", "seed": seed}

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()

    def tasks(self, split: str) -> TaskStream:
        """Task i is row i of the split's dataset, or the taskset's task i.

        Training asks before it opens anything: then a process is started for the sizes alone, which are kept.
        """
        if not self._about:
            self._about = describe(DIALECT, self.python, self._settings(0), beside=_file(self.source))
        sizes = self._about["splits"]
        if split not in sizes:
            raise DataError(f"{self.name} has no split {split}", hint=f"--split {next(iter(sizes), 'train')}")
        return TaskStream(lambda index: Task(id=f"{split}-{index:06}", info=_place(split, index)), sizes[split])

    async def roll_group(self, task: Task, context: GroupContext) -> AsyncIterator[ScoredGroup]:
        """group_size rollouts, each a request of its own; one request for all where they are scored together."""
        if self._about["together"]:
            results = [await self._roll(task, context, 0, context.group_size)]
        else:
            results = list(await asyncio.gather(*(self._roll(task, context, n, 1) for n in range(context.group_size))))
        about = next((about for about, _ in results if about is not None), {})
        rollouts = [rollout for _, found in results for rollout in found]
        rollouts = [item.model_copy(update={"id": f"{context.group_id}/{n}"}) for n, item in enumerate(rollouts)]
        update: Data = {
            "prompt": shared_prompt(item.messages for item in rollouts),
            "answer": about.pop("answer", None),
        }
        task = task.model_copy(update={**update, "info": {**task.info, **about}})
        yield context.group(task, await context.score(task, rollouts))

    async def _roll(
        self, task: Task, context: GroupContext, number: int, count: int
    ) -> tuple[Data | None, list[Rollout]]:
        """(what the environment says of the task, the rollouts of one request). A failure is theirs alone."""
        assert self._process is not None
        models: dict[str, EngineModel] = {}

        async def answer(question: Data) -> Any:
            name = str(question.pop("rollout"))
            if name not in models:
                unique = number + len(models) * context.group_size
                models[name] = EngineModel(context, own_sampling=self.config.own_sampling, number=unique)
            return await models[name].chat(question)

        place: Any = task.info["place"]
        request = {"do": "rollouts", **place, "count": count}
        try:
            said = await self._process.request(request, answer=answer, seconds=self.config.timeout_s)
        except (ForeignFailed, WorkerError) as error:
            return None, [failed(task, error) for _ in range(count)]
        return said["task"], rollouts_of(task, said["rollouts"], models)


def _place(split: str, index: int) -> Data:
    return {"place": {"split": split, "index": index}}


def _settings(source: str) -> Data:
    module, folder = module_of(source)
    return {"module": module, "folder": folder}


def environment_class(rest: str) -> type[VerifiersEnvironment]:
    """The class for the name of one that was added. Starts its Python when it is new."""
    if not rest:
        return VerifiersEnvironment
    record = known("verifiers", rest)
    source = str(record.source)
    made, about = process_class(VerifiersEnvironment, DIALECT, record, _settings(source), beside=_file(source))
    made.splits = SPLITS.get(about["api"], ("train",))
    return made


def _file(source: str) -> Path | None:
    """A file beside which those of a source are, where it is run from its folder."""
    _, folder = module_of(source)
    if folder is None:
        return None
    place = Path(source)
    return place / "__init__.py" if place.is_dir() else place


family = Family(DIALECT, (FROM_04,), environment_class, check_source, installs=installs, named=True)
__all__ = ["VerifiersEnvironment", "family"]
