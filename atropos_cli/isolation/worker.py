"""Isolated workers as their host sees them: start one, put requests to it, end it.

    spec = WorkerSpec(name="reasoning-gym", module="/.../worker.py", memory_mb=512)
    worker = shared_worker(spec)
    value = await worker.ask({"answer": text}, seconds=5)

A worker is one warm process (`serve`) that holds a module and forks for each request, so that a request costs a
fork, and what it does to its process is gone with it. May be used from any thread and any event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
from typing import Any

from atropos_cli.isolation import child
from atropos_cli.isolation.command import WORK
from atropos_cli.isolation.inside import serve
from atropos_cli.isolation.shutin import ShutIn
from atropos_cli.isolation.spec import (
    HINT,
    Level,
    Way,
    WorkerCrashed,
    WorkerError,
    WorkerMemory,
    WorkerSpec,
    WorkerTimeout,
    ways,
)

GRACE_S = 5.0
"""Seconds after a request's own deadline until the worker is taken for lost."""

_Answer = concurrent.futures.Future[dict[str, Any]]


class IsolatedWorker:
    """One worker, started on first use and again after it was lost."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.level: Level | None = None
        self.tried: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._candidate: Way | None = None

    def start(self) -> None:
        """Start it now. Raises WorkerError with the reason when it cannot be."""
        self._running()

    def ask_now(
        self,
        request: dict[str, Any],
        *,
        seconds: float,
        fork: bool = True,
        trusted: bool = False,
        refused: list[str] | None = None,
    ) -> Any:
        """ask(), waited for here."""
        for last in (False, True):
            process = self._running()
            try:
                answer = process.put(request, seconds, fork, trusted).result(self._patience(seconds, fork))
                return _value(answer, seconds, refused)
            except (TimeoutError, _Lost) as error:
                self._lost(process, error, last)
        raise AssertionError("not reached")

    async def ask(
        self,
        request: dict[str, Any],
        *,
        seconds: float,
        fork: bool = True,
        trusted: bool = False,
        refused: list[str] | None = None,
    ) -> Any:
        """The module's answer. Raises WorkerError.

        trusted: nothing in the request comes from a model, so the module may evaluate what it likes.
        refused: gets the reason when the module was to evaluate a text and was kept from it (see `guard`).
        """
        for last in (False, True):
            process = await asyncio.to_thread(self._running) if self._process is None else self._running()
            future = asyncio.wrap_future(process.put(request, seconds, fork, trusted))
            try:
                answer = await asyncio.wait_for(future, self._patience(seconds, fork))
                return _value(answer, seconds, refused)
            except (TimeoutError, _Lost) as error:
                self._lost(process, error, last)
        raise AssertionError("not reached")

    def close(self) -> None:
        """End it and everything in it. Safe to call again; a later request starts it again."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.close()

    @property
    def pid(self) -> int | None:
        """The process id of the worker's outermost process, None while it does not run."""
        return self._process.pid if self._process is not None else None

    def _patience(self, seconds: float, fork: bool) -> float | None:
        # A forked request may wait for others first: each of them ends in time, the worker sees to that.
        return None if fork else seconds + GRACE_S

    def _running(self) -> _Process:
        with self._lock:
            if self._process is None or not self._process.alive:
                if self._process is not None:
                    self._process.close()
                self._process = self._start()
            return self._process

    def _start(self) -> _Process:
        """A process of the best level that works; the level is kept for later starts."""
        reasons: list[str] = []
        kind: str | None = None
        for way in [self._candidate] if self._candidate else list(ways(self.spec.isolation)):
            try:
                process = _Process(self.spec, way)
            except OSError as failure:
                reasons.append(f"{way.level}: the {self.spec.name} worker cannot be started: {failure}")
                continue
            except WorkerError as failure:
                kind = failure.type or kind
                reasons.append(f"{way.level}: the {self.spec.name} worker did not start: {failure}")
                continue
            self._candidate, self.level, self.tried = way, way.level, tuple(reasons)
            return process
        if not reasons:
            raise WorkerCrashed(f"{self.spec.name}: isolation {self.spec.isolation!r} is not known")
        raise WorkerCrashed(f"no {self.spec.name} worker can be started: {'; '.join(reasons)}", hint=HINT, type=kind)

    def _lost(self, process: _Process, error: BaseException, last: bool) -> None:
        with self._lock:
            if self._process is process:
                self._process = None
        process.close()
        if last:
            raise WorkerCrashed(f"the {self.spec.name} worker was lost twice ({error or 'no answer'})") from None


class _Lost(Exception):
    """The worker's process ended."""


class _Process(ShutIn):
    """One start of a worker."""

    def __init__(self, spec: WorkerSpec, way: Way) -> None:
        """Raises OSError and WorkerCrashed."""
        self._folder: str | None = None
        self._futures: dict[int, _Answer] = {}
        self._lock = threading.Lock()
        self._count = 0
        self._closed = False
        self._reader: threading.Thread | None = None
        if way.level == "process":
            self._folder = tempfile.mkdtemp(prefix="atropos-worker-")
        settings = {
            "module": spec.module, "settings": json.loads(spec.settings), "show": list(spec.show), "most": spec.most,
            "memory_mb": spec.memory_mb, "work": self._folder or WORK,
        }  # fmt: skip
        try:
            super().__init__(way, serve.BOOT, settings, show=[*spec.show, spec.module], own=self._folder)
            self.wait_ready(spec.start_s)
        except BaseException:
            self._remove()
            raise
        self._reader = threading.Thread(target=self._read, name=f"{spec.name}-worker", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        return not self._closed

    def put(self, request: dict[str, Any], seconds: float, fork: bool, trusted: bool) -> _Answer:
        """Send a request; its answer comes as {"value": ...} or {"error": ...}. The future may end in _Lost."""
        future: _Answer = concurrent.futures.Future()
        with self._lock:
            if self._closed:
                future.set_exception(_Lost("it has ended"))
                return future
            self._count += 1
            number = self._count
            self._futures[number] = future
            message = {"number": number, "seconds": seconds, "fork": fork, "trusted": trusted, "request": request}
            try:
                self._connection.sendall(child.packed(message))
            except OSError:
                # The reader sees the end too and tells everybody who waits.
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
        return future

    def _read(self) -> None:
        try:
            while True:
                message = self._message()
                with self._lock:
                    future = self._futures.pop(message.pop("number"), None)
                if future is not None and future.set_running_or_notify_cancel():
                    future.set_result(message)
        except (OSError, _Lost, ValueError, KeyError) as error:
            with self._lock:
                self._closed = True
                waiting = list(self._futures.values())
                self._futures.clear()
            for future in waiting:
                if future.set_running_or_notify_cancel():
                    future.set_exception(_Lost(str(error)))

    def _message(self) -> dict[str, Any]:
        try:
            message = child.receive(self.incoming, serve.MOST_BYTES)
        except child.NotAMessage:
            raise _Lost("it sent something other than a message") from None
        if message is None:
            raise _Lost("its process ended")
        return message

    def close(self) -> None:
        """End it and everything in it. Safe to call again."""
        self._closed = True
        self.end(1.0)
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join(GRACE_S)
        self.close_log()
        self._remove()

    def _remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _value(answer: dict[str, Any], seconds: float, refused: list[str] | None) -> Any:
    error = answer.get("error")
    if refused is not None and "refused" in answer:
        refused.append(str(answer["refused"]))
    if error is None:
        return answer["value"]
    if error == "timeout":
        raise WorkerTimeout(f"no answer within {seconds:g} s")
    if error == "memory":
        raise WorkerMemory("the memory limit was reached")
    if error == "crashed":
        raise WorkerCrashed(f"the process that was to answer died ({answer.get('message')})")
    raise WorkerError(f"{answer.get('type')}: {answer.get('message')}", type=str(answer.get("type")))


_shared: dict[tuple[int, WorkerSpec], IsolatedWorker] = {}
_shared_lock = threading.Lock()


def shared_worker(spec: WorkerSpec) -> IsolatedWorker:
    """The worker of this process for a spec; started on first use, ended at exit."""
    key = (os.getpid(), spec)
    with _shared_lock:
        if key not in _shared:
            _shared[key] = IsolatedWorker(spec)
            atexit.register(_shared[key].close)
        return _shared[key]
