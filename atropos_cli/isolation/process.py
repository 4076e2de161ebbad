"""Worker processes that share our view of the system, and pools of them: started, asked, killed with what they started.

    worker = await WorkerProcess.start("my_package.worker", "play")
    with worker.call({"op": "step"}) as call:
        answer = await call.next(seconds=5)

`child` is their other side. What a worker may read and write, `worker` and `serve` limit; here it is only its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from atropos_cli.isolation import child
from atropos_cli.isolation.child import Message, NotAMessage
from atropos_cli.isolation.inside import watch
from atropos_cli.isolation.spec import WorkerCrashed, WorkerMemory, WorkerTimeout
from atropos_cli.isolation.start import Started, python

W = TypeVar("W", bound="WorkerProcess")
_LOOK = 0.25
_LAST_S = 0.5
_WATCH = 0.02


class _Worker(Started):
    """A process that runs main(channel, *arguments) of a module, and ends with the thread that started it."""

    def __init__(self, module: str, *arguments: str, interpreter: str | None = None, **how: Any) -> None:
        """module: a name, or the path of a file. how: log, cwd and env of Started. Raises OSError.

        interpreter: another Python than ours, >= 3.10.
        """
        command = python(child.__file__, str(os.getpid()), module, *arguments)
        if interpreter is not None:
            command = [interpreter, *(word for word in command[1:] if word != "-P")]  # which 3.10 does not know
        super().__init__(command, **how)
        self._ids = itertools.count(1)


class DirectWorker(_Worker):
    """A process for one thread, which waits for each answer; it ends with that thread."""

    def __init__(self, module: str, *arguments: str, **how: Any) -> None:
        super().__init__(module, *arguments, **how)
        self._poll = select.poll()
        self._poll.register(self._connection, select.POLLIN)

    def ask(self, message: Message, seconds: float, memory_mb: int) -> Message:
        """The answer. Raises WorkerTimeout, WorkerMemory or WorkerCrashed; then the caller must kill()."""
        number = next(self._ids)
        deadline = time.monotonic() + seconds
        try:
            self._connection.sendall(child.packed({"id": number, **message}))
            while (left := deadline - time.monotonic()) > 0:
                if self._poll.poll(min(left, _WATCH) * 1000):
                    answer = child.receive(self.incoming)
                    if answer is None or answer.get("id") != number:
                        break
                    return answer
                elif watch.resident(self.pid) > memory_mb << 20:
                    raise WorkerMemory(f"it used more than {memory_mb} MB")
            else:
                raise WorkerTimeout(f"no answer in {seconds:g} s")
        except (OSError, NotAMessage):
            pass
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_S)
        raise WorkerCrashed(self.ending())

    def kill(self) -> None:
        """End the process and its group, and reap it."""
        self.end()


class WorkerProcess(_Worker):
    """A process that any number of coroutines of one event loop ask. Of no more use when it has `died`."""

    def __init__(self, module: str, *arguments: str, **how: Any) -> None:
        super().__init__(module, *arguments, **how)
        self.died: str | None = None
        self._killed = False
        self._calls: dict[int, Call] = {}

    @classmethod
    async def start(cls, module: str, *arguments: str, **how: Any) -> Self:
        """Start a process; see _Worker for the arguments.

        Not in another thread: the kernel ends a worker together with the thread that started it.
        """
        worker = cls(module, *arguments, **how)
        reader, worker._writer = await asyncio.open_unix_connection(sock=worker._connection)
        worker._listening = asyncio.create_task(worker._listen(reader))
        return worker

    _writer: asyncio.StreamWriter
    _listening: asyncio.Task[None]

    @property
    def alive(self) -> bool:
        return self.died is None and super().alive

    def call(self, message: Message) -> Call:
        """Send a request; what the call gives are the messages with its id. Raises WorkerCrashed."""
        return Call(self, next(self._ids), message)

    async def hello(self, seconds: float) -> Message:
        """What a process says unasked, with id 0. Raises WorkerTimeout or WorkerCrashed."""
        with Call(self, 0, None) as call:
            return await call.next(seconds)

    def send(self, message: Message) -> None:
        """Send a message. Raises WorkerCrashed."""
        if self.died is not None:
            raise self.crash()
        self._writer.write(child.packed(message))

    def crash(self) -> WorkerCrashed:
        """The error for who waits for an answer."""
        error = WorkerCrashed(self.died or self.ending())
        error.killed = self._killed
        return error

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                size = child.size_of(await reader.readexactly(child.HEADER.size))
                message = child.unpacked(await reader.readexactly(size))
                call = self._calls.get(message.get("id", 0))
                if call is not None:
                    call.answers.put_nowait(message)
        except (NotAMessage, TypeError):
            self.died = self.died or "something else was written to its answers"
        except (asyncio.IncompleteReadError, ConnectionError):
            # The socket closes a moment before the process ends.
            await _wait(self, _LAST_S)
            self.died = self.died or self.ending()
        finally:
            for call in self._calls.values():
                call.answers.put_nowait(None)

    async def kill(self) -> None:
        """End the process and its group, and reap it. Calls still waiting raise WorkerCrashed."""
        self._killed = True
        self.died = self.died or "it was stopped because a call hung"
        await self._collect()

    async def close(self, grace: float = 1.0) -> None:
        """Let the process end by itself; kill it when it does not in `grace` seconds."""
        self._killed = True
        self.died = self.died or "it was closed"
        self._writer.close()
        await _wait(self, grace)
        await self._collect()

    async def _collect(self) -> None:
        self._kill_group()
        await asyncio.to_thread(self._process.wait)
        self._writer.close()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)


class Call:
    """A request and its answers. Use as a context manager: answers that come later are thrown away."""

    def __init__(self, worker: WorkerProcess, number: int, message: Message | None) -> None:
        self.answers: asyncio.Queue[Message | None] = asyncio.Queue()
        self._worker = worker
        self._number = number
        if message is not None:
            self.send(message)
        worker._calls[number] = self

    def send(self, message: Message) -> None:
        """Send a message that belongs to the request. Raises WorkerCrashed."""
        self._worker.send({"id": self._number, **message})

    async def next(self, seconds: float) -> Message:
        """The next answer. Raises WorkerTimeout or WorkerCrashed.

        A process that is gone while a child of it holds the socket open is noticed too.
        """
        left = seconds
        while True:
            wait = min(left, _LOOK)
            try:
                message = await asyncio.wait_for(self.answers.get(), wait)
            except TimeoutError:
                left -= wait
                if not self._worker.alive:
                    raise self._worker.crash() from None
                if left <= 0:
                    raise WorkerTimeout(f"no answer in {seconds:g} s") from None
                continue
            if message is None:
                raise self._worker.crash()
            return message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker._calls.pop(self._number, None)


class WorkerPool(Generic[W]):
    """As many workers as were asked for, each started when it is needed, kept, and replaced when it is lost."""

    def __init__(self, start: Callable[[], Awaitable[W]], size: int) -> None:
        self.restarts = 0
        self._start = start
        self._idle: asyncio.LifoQueue[W | None] = asyncio.LifoQueue()
        self._all: set[W] = set()
        for _ in range(size):
            self._idle.put_nowait(None)

    @contextlib.asynccontextmanager
    async def lease(self) -> AsyncIterator[W]:
        """A worker of one's own. An error in the block (it is late, or its state is unknown) ends it."""
        worker = await self._idle.get()
        try:
            if worker is not None and not worker.alive:
                await self._drop(worker)
                worker = None
            if worker is None:
                worker = await self._start()
                self._all.add(worker)
            yield worker
        except BaseException:
            if worker is not None:
                await asyncio.shield(self._drop(worker))
                worker = None
            raise
        finally:
            self._idle.put_nowait(worker)

    async def _drop(self, worker: W) -> None:
        self._all.discard(worker)
        self.restarts += 1
        await worker.kill()

    def pids(self) -> list[int]:
        """The process ids of the workers that are alive."""
        return [worker.pid for worker in self._all if worker.alive]

    async def close(self) -> None:
        """End all workers. Safe to call twice."""
        workers, self._all = self._all, set()
        await asyncio.gather(*(worker.close() for worker in workers))


async def _wait(worker: Started, seconds: float) -> None:
    """Give a process some time to end."""
    for _ in range(round(seconds / 0.005)):
        if worker.exit_code() is not None:
            return
        await asyncio.sleep(0.005)
