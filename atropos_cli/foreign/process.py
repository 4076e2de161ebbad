"""A foreign environment's process: requests to it at once, its questions answered by the engine, lost ones replaced.

    foreign = ForeignProcess(Dialect("atroposlib", file, packages), "/venv/bin/python", {"path": ...})
    about = await foreign.open()
    group = await foreign.request({"do": "group", "index": 7}, answer=model.answer, seconds=600)

A process that ends, or hangs, takes all its requests with it. They are sent once more, one at a time: so the one that
does it is found, and fails alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from atropos_cli.domain.base import clean_text
from atropos_cli.errors import AtroposError, PluginError
from atropos_cli.foreign import inside
from atropos_cli.foreign.data import Data
from atropos_cli.isolation.process import Call, WorkerProcess
from atropos_cli.isolation.spec import WorkerCrashed, WorkerError, WorkerTimeout

Answer = Callable[[Data], Awaitable[Any]]
"""Answers a question of the process: a request to the model. Its exception is the error of the process."""
START_S = 900.0
"""Imports from a file system that many share take minutes."""
_TAIL = 2000
_OVER = "over"
_LOOK_S = 1.0
_CLOSE_S = 4.0


@dataclass(frozen=True, slots=True)
class Dialect:
    """How environments of a framework are run: the file for their side, and the distributions to name versions of."""

    name: str
    file: Path
    packages: tuple[str, ...]


class ForeignFailed(AtroposError):
    """The environment raised an exception, which is the failure of this request alone. type: the exception's name."""

    def __init__(self, failed: Data) -> None:
        self.type = str(failed.get("type"))
        self.trace = str(failed.get("trace", ""))
        super().__init__(clean_text(f"{self.type}: {failed.get('message')}"))


class Silent(WorkerTimeout):
    """shared: other requests were in the process at some time meanwhile, so another one may have held it up."""

    shared = False


class ForeignProcess:
    """One environment in one process. open() first; any number of request() at once; close() last."""

    def __init__(self, dialect: Dialect, interpreter: str, settings: Data, *, cwd: str | None = None) -> None:
        self._dialect = dialect
        self._interpreter = interpreter
        self._settings = {**settings, "packages": list(dialect.packages)}
        self._cwd = cwd
        self._worker: WorkerProcess | None = None
        self._log: IO[bytes] | None = None
        self._starting = asyncio.Lock()
        self._alone = asyncio.Lock()
        self._open: dict[WorkerProcess, int] = {}
        self._shared: set[WorkerProcess] = set()
        self.restarts = 0
        self.hello: Data = {}

    async def open(self, seconds: float = START_S) -> Data:
        """Start it; its first message. Raises PluginError when the environment cannot be started."""
        await self._ready(seconds)
        return self.hello

    @property
    def pid(self) -> int | None:
        return None if self._worker is None else self._worker.pid

    async def request(
        self,
        message: Data,
        *,
        answer: Answer | None = None,
        seconds: float,
        note: Callable[[Data], object] = bool,
    ) -> Any:
        """The answer to a request. Raises ForeignFailed, WorkerTimeout or WorkerCrashed.

        seconds: how long it may be silent while it waits for no answer of ours; then the process is ended.
        """
        try:
            return await self._send(message, answer, seconds, note)
        except Silent as silent:
            if not silent.shared:
                raise
            async with self._alone:
                return await self._send(message, answer, seconds, note)
        except WorkerCrashed:
            async with self._alone:
                try:
                    return await self._send(message, answer, seconds, note)
                except WorkerCrashed as error:
                    raise WorkerCrashed(f"{error}{self.said()}") from error

    async def _send(self, message: Data, answer: Answer | None, seconds: float, note: Callable[[Data], object]) -> Any:
        worker = await self._ready(START_S)
        self._open[worker] = self._open.get(worker, 0) + 1
        if self._open[worker] > 1:
            self._shared.add(worker)
        try:
            return await _Exchange(worker, answer, note).run(message, seconds)
        except WorkerTimeout as error:
            silent = Silent(f"the environment was silent for {seconds:g} s")
            silent.shared = worker in self._shared
            await self._drop(worker)
            raise silent from error
        except WorkerCrashed:
            await self._drop(worker)
            raise
        finally:
            self._open[worker] -= 1
            if not self._open[worker]:
                del self._open[worker]
                self._shared.discard(worker)

    async def close(self) -> None:
        """End the process. Safe to call twice."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.close(_CLOSE_S)
        if self._log is not None:
            self._log.close()
            self._log = None

    def said(self) -> str:
        """The end of its output, as part of a message."""
        if self._log is None:
            return ""
        with contextlib.suppress(OSError, ValueError):
            end = self._log.seek(0, 2)
            self._log.seek(max(0, end - _TAIL))
            text = clean_text(self._log.read().decode(errors="replace")).strip()
            return f"; it printed last: {text[-_TAIL:]}" if text else ""
        return ""

    async def _ready(self, seconds: float) -> WorkerProcess:
        async with self._starting:
            if self._worker is None or not self._worker.alive:
                if self._worker is not None:
                    await self._drop(self._worker)
                self._worker = await self._start(seconds)
            return self._worker

    async def _start(self, seconds: float) -> WorkerProcess:
        if self._log is None:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        try:
            worker = await WorkerProcess.start(
                inside.__file__, str(self._dialect.file), json.dumps(self._settings),
                interpreter=self._interpreter, log=self._log, cwd=self._cwd,
            )  # fmt: skip
        except OSError as error:
            raise PluginError(
                f"cannot start {self._interpreter}: {error.strerror or error}",
                hint=f"atropos env add {self._dialect.name}",
            ) from error
        try:
            hello = await worker.hello(seconds)
        except WorkerError as error:
            await worker.kill()
            said = f"the environment's process did not start: {error}"
            if self.hello:  # it did before: the requests that wait for it are sent once more, as after any crash
                raise WorkerCrashed(said) from error
            raise PluginError(f"{said}{self.said()}") from error
        except asyncio.CancelledError:
            await worker.kill()
            raise
        if hello.get("protocol") != inside.PROTOCOL:
            await worker.kill()
            raise PluginError(f"the environment's process speaks protocol {hello.get('protocol')!r}")
        if (failed := hello.get("error")) is not None:
            await worker.kill()
            raise start_error(self._dialect, failed)
        self.hello = hello
        return worker

    async def _drop(self, worker: WorkerProcess) -> None:
        if worker is self._worker:
            self._worker = None
            self.restarts += 1
        await worker.kill()


def start_error(dialect: Dialect, failed: Data) -> PluginError:
    """The exception of an environment that could not be started, with what to install where a module is missing."""
    kind, message = failed.get("type"), str(failed.get("message"))
    hint = None
    if kind == "ModuleNotFoundError" and "'" in message:
        # No package is named: the one that is called like the module may be somebody else's.
        name = message.split("'")[1]
        hint = f"atropos env add {dialect.name} --with PACKAGE, for the package that has the module {name!r}"
    elif isinstance(given := failed.get("hint"), str):
        hint = clean_text(given)
    lines = [line for line in str(failed.get("trace", "")).splitlines() if line.strip().startswith("File ")]
    where = f" ({lines[-1].strip()})" if lines else ""
    return PluginError(clean_text(f"the environment cannot be started: {kind}: {message}{where}"), hint=hint)


class _Exchange:
    """One request on its way, with the questions that it asks."""

    def __init__(self, worker: WorkerProcess, answer: Answer | None, note: Callable[[Data], object]) -> None:
        self._worker = worker
        self._answer = answer
        self._note = note
        self._asked: set[asyncio.Task[None]] = set()

    async def run(self, message: Data, seconds: float) -> Any:
        with self._worker.call(message) as call:
            try:
                while True:
                    said = await self._next(call, seconds)
                    if (broken := said.get(_OVER)) is not None:
                        raise broken
                    if "ask" in said:
                        self._ask(call, said)
                    elif "note" in said:
                        self._note(said["note"])
                    elif (failed := said.get("failed")) is not None:
                        raise ForeignFailed(failed)
                    else:
                        return said.get("done")
            except BaseException:
                with contextlib.suppress(WorkerError):
                    call.send({"cancel": True})
                raise
            finally:
                for task in self._asked:
                    task.cancel()

    async def _next(self, call: Call, seconds: float) -> Data:
        """The next message. The time does not run while it waits for us."""
        left = seconds
        while True:
            wait = min(left, _LOOK_S)
            try:
                return await call.next(wait)
            except WorkerTimeout:
                left = seconds if self._asked else left - wait
                if left <= 0:
                    raise

    def _ask(self, call: Call, question: Data) -> None:
        task = asyncio.create_task(self._reply(call, question))
        self._asked.add(task)
        task.add_done_callback(lambda done: self._answered(call, done))

    async def _reply(self, call: Call, question: Data) -> None:
        said: Data = {"answer": question["ask"]}
        try:
            if self._answer is None:
                raise AtroposError("this request may not ask the model")
            said["value"] = await self._answer(question)
        except Exception as error:  # noqa: BLE001 - the environment decides what becomes of it
            said["error"] = f"{type(error).__name__}: {error}"
        with contextlib.suppress(WorkerCrashed):
            call.send(said)

    def _answered(self, call: Call, task: asyncio.Task[None]) -> None:
        self._asked.discard(task)
        # What ends the run is no exception that an environment may catch.
        if not task.cancelled() and (error := task.exception()) is not None:
            call.answers.put_nowait({_OVER: error})
