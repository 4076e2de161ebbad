"""What environments of tested programs share: options, the episode, and the proof of gold answers."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from atropos_cli.sdk import Config, ConfigError, DataError, Environment, Episode, Field, JsonDict, Message, Task
from atropos_cli.sdk.isolation import accept_isolation
from atropos_code import judging
from atropos_code.rewards import code_tests, code_tests_levels
from atropos_code.rows import Row, read_rows
from atropos_code.sandbox import shared_sandbox

KINDS = (
    "no_code",
    "syntax_error",
    "missing_function",
    "load_error",
    "error",
    "failed",
    "timeout",
    "memory",
    "processes",
)
"""Ways to fail, each a metric of its own."""


class SandboxConfig(Config):
    """Options of every environment that runs programs."""

    timeout_s: float = Field(default=10.0, gt=0, le=600, description="Wall-clock seconds for one program.")
    memory_mb: int = Field(default=1024, ge=64, description="Memory for one program, in MiB.")
    isolation: Literal["auto", "namespaces", "bubblewrap", "process", "unprotected"] = Field(
        default="auto",
        description="How programs are shut in; auto takes the best level of this machine, unprotected accepts that "
        "programs can reach what you can.",
    )


class SandboxedEnvironment(Environment):
    """An environment that runs programs."""

    Config = SandboxConfig
    config: SandboxConfig

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Find out before the first task whether programs can be shut in as they should be. Raises SandboxError."""
        await asyncio.to_thread(lambda: shared_sandbox(accept_isolation(self.config.isolation)).isolation)


class TestedConfig(SandboxConfig):
    """Options of environments whose tasks have tests."""

    __test__ = False

    data_path: Path | None = Field(default=None, description="Local JSON or JSONL file instead of the hub.")
    prompt_style: Literal["chat", "plain"] = Field(
        default="chat", description="chat: instructions and turns; plain: one text to continue, for base models."
    )


def sandbox_info(config: SandboxConfig) -> JsonDict:
    """The options as a task holds them."""
    level = accept_isolation(config.isolation)
    return {"timeout_s": config.timeout_s, "memory_mb": config.memory_mb, "isolation": level}


class TestedEpisode(Episode):
    """One reply, judged at once; the verdict becomes `rollout.info` and metrics."""

    __test__ = False

    def __init__(self, task: Task) -> None:
        self.task = task
        self._info: JsonDict = {}
        self._metrics: dict[str, float] = {}

    def reset(self) -> Sequence[Message]:
        return self.task.prompt

    async def step(self, reply: Message) -> None:
        suite = judging.suite_of(self.task)
        if suite is None:
            raise DataError(f"task {self.task.id} has no tests")
        result = await judging.test_reply(self.task, suite, reply.text)
        self._info = {"verdict": result.verdict, "passed": result.passed, "total": result.total, "error": result.error}
        self._metrics = {"tests_passed": result.passed / result.total}
        self._metrics |= {kind: float(result.verdict == kind) for kind in KINDS}

    def result(self) -> JsonDict:
        return self._info

    def metrics(self) -> dict[str, float]:
        return self._metrics


class TestedEnvironment(SandboxedEnvironment):
    """Tasks with tests, from rows of a file or of the hub. Subclasses say what a row means."""

    __test__ = False

    Config = TestedConfig
    rewards = (code_tests, code_tests_levels)
    config: TestedConfig
    _rows: list[Row] | None = None

    @abstractmethod
    def from_hub(self) -> list[Row]:
        """The rows when no file is given."""

    @abstractmethod
    def task(self, row: Row, place: int, split: str) -> Task | None:
        """The task of a row; None when the row belongs to another split."""

    def rows(self) -> list[Row]:
        """All rows, read once."""
        if self._rows is None:
            self._rows = read_rows(self.config.data_path) if self.config.data_path else self.from_hub()
        return self._rows

    def prefetch(self) -> Iterator[str]:
        """The hub's rows, into the library's cache."""
        if self.config.data_path is None:
            yield f"{len(self.rows())} rows"

    def tasks(self, split: str) -> Sequence[Task]:
        """The split's tasks in the order of the data. Raises DataError when there is none."""
        made = [self.task(row, place, split) for place, row in enumerate(self.rows())]
        found = [task for task in made if task is not None]
        if not found:
            others = {
                other: count
                for other in self.splits
                if (count := sum(self.task(row, place, other) is not None for place, row in enumerate(self.rows())))
            }
            listed = ", ".join(f"{name} ({count})" for name, count in others.items()) or "none"
            raise DataError(
                f"{self.name}: split {split!r} has no tasks here; with tasks: {listed}", hint="--split NAME"
            )
        return found

    def episode(self, task: Task) -> Episode:
        return TestedEpisode(task)

    async def validate(self, task: Task) -> bool | None:
        """Does the gold program pass all tests?"""
        suite = judging.suite_of(task)
        if suite is None or not task.answer:
            return None
        return (await judging.test_program(task, suite, str(task.answer))).verdict == "passed"


def missing(name: str, place: int, key: str) -> ConfigError | DataError:
    """The error of a row that lacks what it needs."""
    return DataError(f"{name}: row {place + 1} has no {key!r}", hint=f"every row needs a field {key!r}")
