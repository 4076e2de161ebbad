"""The environment `atroposlib:FILE.py:CLASS`: groups of an environment of atroposlib, sampled by the engine.

Its process runs with the rights of the user, as when the file is run by hand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from atropos_atroposlib.config import HIDDEN, BridgeConfig
from atropos_atroposlib.groups import evaluation_rollouts, rollouts_of, zeroed
from atropos_cli.sdk import (
    ConfigError,
    DataError,
    Environment,
    GroupContext,
    ScoredGroup,
    Task,
    TaskStream,
    UsageError,
)
from atropos_cli.sdk.foreign import (
    DEFAULT,
    Added,
    Data,
    Dialect,
    EngineModel,
    Family,
    ForeignProcess,
    chosen,
    known,
    process_class,
    python_for,
)

PACKAGES = ("atroposlib", "transformers", "openai")
REQUIREMENTS = ("atroposlib==0.4.0", "transformers==4.57.6")
DIALECT = Dialect("atroposlib", Path(__file__).with_name("worker.py"), PACKAGES)


class AtroposlibEnvironment(Environment):
    """A class of atroposlib, run unmodified in a process of its own: atroposlib:FILE.py:CLASS."""

    name = "atroposlib"
    Config: ClassVar[type[BaseModel]] = BridgeConfig
    rewards = ("atroposlib_score",)
    splits: ClassVar[Sequence[str]] = ("train", "test")
    source: ClassVar[str] = ""
    python: ClassVar[str] = ""
    own_values: ClassVar[Data] = {}
    config: BridgeConfig

    def __init__(self, config: BridgeConfig) -> None:
        super().__init__(config)
        self._process: ForeignProcess | None = None

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Start the process and set the environment up in it."""
        if not self.source:
            raise ConfigError("atroposlib is a prefix", hint="atropos gen atroposlib:FILE.py:CLASS")
        given = chosen(self.config, BridgeConfig, self.own_values)
        settings = {**_settings(self.source), "mode": "run", "config": given, "seed": seed}
        self._process = ForeignProcess(DIALECT, self.python, settings, cwd=str(Path(settings["path"]).parent))
        await self._process.open()

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()

    def tasks(self, split: str) -> TaskStream:
        """Task i is the environment's item i; in split test there is one: its evaluate()."""
        if split == "test":
            return TaskStream(lambda index: Task(id="evaluate"), 1)
        return TaskStream(lambda index: Task(id=f"item-{index:06}", info={"index": index}))

    async def roll_group(self, task: Task, context: GroupContext) -> AsyncIterator[ScoredGroup]:
        """What the environment collects for an item: one group, or several that follow each other."""
        model = EngineModel(context, own_sampling=self.config.own_sampling)
        if "index" not in task.info:
            yield await self._evaluate(task, context, model)
            return
        request = {"do": "group", "index": task.info["index"], "group_size": context.group_size}
        said = await self._ask(request, model)
        if not said["groups"]:
            raise DataError("the environment gave no group for this item: it rejected the replies")
        task = task.model_copy(update={"info": {**task.info, "item": said["item"]}})
        several = len(said["groups"]) > 1
        for turn, entries in enumerate(said["groups"]):
            made = rollouts_of(f"{context.group_id}.{turn}" if several else context.group_id, task, entries, model)
            task_made, rollouts = made
            rollouts = list(await context.score(task_made, rollouts))
            last = turn == len(said["groups"]) - 1
            group = context.group(task_made, rollouts, turn=turn if several else None, last=last)
            yield zeroed(group, entries)

    async def _evaluate(self, task: Task, context: GroupContext, model: EngineModel) -> ScoredGroup:
        said = await self._ask({"do": "evaluate"}, model)
        rollouts = evaluation_rollouts(context.group_id, task, said, model)
        return context.group(task, await context.score(task, rollouts))

    async def _ask(self, request: Data, model: EngineModel) -> Any:
        assert self._process is not None

        async def answer(question: Data) -> Any:
            if question["kind"] == "logprobs":
                return await model.logprobs(question["ids"])
            return await model.chat(question)

        return await self._process.request(request, answer=answer, seconds=self.config.timeout_s)


def _settings(source: str) -> Data:
    path, _, attr = source.rpartition(":")
    return {"path": path, "attr": attr}


def check_source(text: str) -> str:
    """FILE.py:CLASS with the absolute path. Raises UsageError."""
    path, _, attr = text.rpartition(":")
    if not path.endswith(".py") or not attr:
        raise UsageError(f"{text!r} does not name a class in a file", hint="FILE.py:CLASS")
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise UsageError(f"there is no file {file}")
    return f"{file}:{attr}"


def environment_class(rest: str) -> type[AtroposlibEnvironment]:
    """The class for FILE.py:CLASS, or for the name of one that was added. Starts its Python when it is new."""
    if not rest:
        return AtroposlibEnvironment
    if ".py:" in rest:
        name = rest.rpartition(":")[2]
        record = Added(dialect="atroposlib", name=name, source=rest, python=python_for("atroposlib", rest).python)
    else:
        record = known("atroposlib", rest, "atroposlib:FILE.py:CLASS")
    settings = _settings(str(record.source))
    made, _ = process_class(
        AtroposlibEnvironment, DIALECT, record, settings, beside=Path(settings["path"]), hidden=HIDDEN
    )
    return made


family = Family(DIALECT, REQUIREMENTS, environment_class, check_source)
__all__ = ["DEFAULT", "AtroposlibEnvironment", "family"]
