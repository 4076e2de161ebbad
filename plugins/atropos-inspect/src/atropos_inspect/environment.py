"""The environment `inspect:PACKAGE/TASK`: samples of a task of inspect_ai, sampled by the engine.

Its process runs with the rights of the user, as under `inspect eval`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from atropos_cli.sdk import (
    AtroposError,
    ConfigError,
    Environment,
    GroupContext,
    Reward,
    Rollout,
    ScoredGroup,
    Task,
    TaskStream,
    UsageError,
)
from atropos_cli.sdk.foreign import (
    Added,
    Data,
    Dialect,
    EngineModel,
    Family,
    ForeignProcess,
    added,
    chosen,
    describe,
    known,
    message_of,
    process_class,
    python_for,
    shared_prompt,
)
from atropos_inspect.config import BridgeConfig
from atropos_inspect.rewards import scorer_reward
from atropos_inspect.rollouts import failed, rollout_of

PACKAGES = ("inspect-ai", "inspect-evals")
REQUIREMENTS = ("inspect-ai==0.3.285",)
DIALECT = Dialect("inspect", Path(__file__).with_name("worker.py"), PACKAGES)
POLICY = "policy"


class InspectEnvironment(Environment):
    """A task of inspect_ai, run unmodified in a process of its own: inspect:PACKAGE/TASK or inspect:FILE.py@TASK."""

    name = "inspect"
    Config: ClassVar[type[BaseModel]] = BridgeConfig
    rewards: ClassVar[Sequence[Reward | str]] = ("inspect_score",)
    roles = ("grader",)
    source: ClassVar[str] = ""
    python: ClassVar[str] = ""
    own_values: ClassVar[Data] = {}
    required: ClassVar[Sequence[str]] = ()
    config: BridgeConfig

    def __init__(self, config: BridgeConfig) -> None:
        super().__init__(config)
        self._process: ForeignProcess | None = None
        self._about: Data = {}

    @classmethod
    def rewards_for(cls, config: BridgeConfig) -> Sequence[Reward | str]:
        """The scorers of the task as these arguments make it; the first score where it cannot be made now."""
        given = _given(config, cls.own_values)
        if not given:
            return cls.rewards
        if any(name not in given for name in cls.required):
            return InspectEnvironment.rewards
        return _rewards(_scorers(cls.source, cls.python, given))

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Start the process and make the task in it."""
        if not self.source:
            raise ConfigError("inspect is a prefix", hint="atropos gen inspect:PACKAGE/TASK")
        self._process = ForeignProcess(DIALECT, self.python, self._settings(seed), cwd=_folder(self.source))
        hello = await self._process.open()
        self._about = hello["about"]

    def _settings(self, seed: int) -> Data:
        given = _given(self.config, self.own_values)
        return {**_settings(self.source), "mode": "run", "args": given, "seed": seed}

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()

    def tasks(self, split: str) -> TaskStream:
        """Task i is sample i of the task's dataset; its id is the sample's.

        Training asks before it opens anything: then a process is started for the samples alone, which are kept.
        """
        if not self._about:
            self._about = describe(
                DIALECT, self.python, self._settings(0), beside=_file(self.source), cwd=_folder(self.source)
            )
        ids, inputs = self._about["ids"], self._about["inputs"]

        def make(index: int) -> Task:
            first = () if inputs is None else inputs[index]
            return Task(id=ids[index], prompt=tuple(map(message_of, first)), info={"index": index})

        return TaskStream(make, len(ids))

    async def roll_group(self, task: Task, context: GroupContext) -> AsyncIterator[ScoredGroup]:
        """group_size rollouts: epochs of the sample, each a request of its own."""
        results = await asyncio.gather(*(self._roll(task, context, n) for n in range(context.group_size)))
        rollouts = [rollout for _, rollout in results]
        about = next((about for about, _ in results if about is not None), {})
        info = {key: about[key] for key in ("choices",) if about.get(key) is not None}
        prompt = shared_prompt(item.messages for item in rollouts) or task.prompt
        task = task.model_copy(update={"prompt": prompt, "answer": about.get("target"), "info": {**task.info, **info}})
        yield context.group(task, await context.score(task, rollouts))

    async def _roll(self, task: Task, context: GroupContext, number: int) -> tuple[Data | None, Rollout]:
        """(what the task says of its sample, the rollout). A failure is this rollout's alone."""
        assert self._process is not None
        model = EngineModel(context, own_sampling=self.config.own_sampling, number=number)

        async def answer(question: Data) -> Any:
            role = question.pop("role")
            return await model.chat(question, role=None if role == POLICY else role)

        roles = [role for role in context.opponents() if role in self.roles]
        request = {"do": "sample", "index": task.info["index"], "epoch": number + 1, "roles": roles}
        name = f"{context.group_id}/{number}"
        try:
            said = await self._process.request(request, answer=answer, seconds=self.config.timeout_s)
        except AtroposError as error:
            return None, failed(name, task, error, model)
        return said, rollout_of(name, task, said, model)


def _given(config: BridgeConfig, own_values: Data) -> Data:
    """The arguments of the task that are not its own defaults."""
    return {**chosen(config, BridgeConfig, own_values), **config.args}


def _scorers(source: str, python: str, args: Data) -> tuple[str, ...]:
    """The names of the scorers of a task with arguments, () where it cannot be made: the run says why."""
    settings = {**_settings(source), "mode": "scorers", "args": args}
    try:
        return tuple(describe(DIALECT, python, settings, beside=_file(source), cwd=_folder(source))["scorers"])
    except AtroposError:
        return ()


def _rewards(scorers: Sequence[str]) -> Sequence[Reward | str]:
    """Those of scorers: the first one counts."""
    made = tuple(scorer_reward(item, float(not place)) for place, item in enumerate(scorers))
    return made or InspectEnvironment.rewards


def _settings(source: str) -> Data:
    file, separator, name = source.rpartition(".py@")
    return {"task": name, "file": f"{file}.py" if separator else None}


def _file(source: str) -> Path | None:
    """The file of a task in a file."""
    file: str | None = _settings(source)["file"]
    return None if file is None else Path(file)


def _folder(source: str) -> str | None:
    """Where a task in a file runs."""
    file = _file(source)
    return None if file is None else str(file.parent)


def check_source(text: str) -> str:
    """PACKAGE/TASK, or FILE.py@TASK with the absolute path. Raises UsageError."""
    path, separator, name = text.rpartition(".py@")
    if separator and name:
        file = Path(f"{path}.py").expanduser().resolve()
        if not file.is_file():
            raise UsageError(f"there is no file {file}")
        return f"{file}@{name}"
    package, slash, name = text.partition("/")
    if not (slash and package.isidentifier() and name and not text.endswith(".py")):
        raise UsageError(f"{text!r} does not name a task of inspect", hint="PACKAGE/TASK or FILE.py@TASK")
    return text


def _python(source: str) -> str:
    """The Python that runs a source: one that was added, else ours where inspect_ai is installed in it."""
    if not added("inspect") and importlib.util.find_spec("inspect_ai") is not None:
        return sys.executable
    return python_for("inspect", source).python


def environment_class(rest: str) -> type[InspectEnvironment]:
    """The class for a task, or for the name of one that was added. Starts its Python when it is new."""
    if not rest:
        return InspectEnvironment
    if "/" in rest or ".py@" in rest:
        source = check_source(rest)
        name = source.rpartition("@")[2].rpartition("/")[2]
        record = Added(dialect="inspect", name=name, source=source, python=_python(source))
    else:
        record = known("inspect", rest, "inspect:PACKAGE/TASK or inspect:FILE.py@TASK")
    settings = {**_settings(str(record.source)), "args": {}}
    beside = _file(str(record.source))
    made, about = process_class(InspectEnvironment, DIALECT, record, settings, beside=beside)
    made.rewards = _rewards(about["scorers"])
    made.required = tuple(about["required"])
    return made


family = Family(DIALECT, REQUIREMENTS, environment_class, check_source)
__all__ = ["InspectEnvironment", "family"]
