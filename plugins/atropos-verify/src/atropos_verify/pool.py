"""A small pool of warm, killable worker processes, each with a deadline and a memory limit per request.

The parent keeps the time and watches the memory: math-verify's own timeouts (SIGALRM, main thread
only) are switched off. A worker that is late, too big or dead is killed with its process group, reaped
and replaced, and the request fails with the reason. Works from any thread and any event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from atropos_cli.sdk import ConfigError, PluginError
from atropos_cli.sdk.isolation import guard_file
from atropos_verify.errors import GoldError, VerifierCrashed, VerifierError, VerifierMemory, VerifierTimeout

T = TypeVar("T")
START_SECONDS = 120.0
MAX_REQUESTS = 5_000
_WATCH_SECONDS = 0.02
_EXTRAS = {"math_verify": "math", "jsonschema": "schema"}
_KEPT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "TMPDIR", "LANG", "LC_ALL")


class _Worker:
    """One child process. Not thread-safe: each pool thread owns one."""

    def __init__(self, memory_mb: int) -> None:
        self.memory = memory_mb << 20
        self.requests = 0
        self.loaded: set[str] = set()
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own file, no shell
                [sys.executable, "-P", "-X", "utf8", str(Path(__file__).with_name("worker.py")), guard_file()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise VerifierCrashed(f"a verifier process cannot be started: {error}") from error
        self.buffer = b""
        try:
            self._read(START_SECONDS)
        except VerifierError:
            self.kill()
            raise

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        self.requests += 1
        line = json.dumps({**request, "seconds": seconds}).encode() + b"\n"
        try:
            self._write(line)
        except OSError:
            raise VerifierCrashed(f"the verifier process died ({self._status()})") from None
        return self._read(seconds)

    def _write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(line)
        while view:
            view = view[self.process.stdin.write(view) or 0 :]

    def _read(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN | select.POLLHUP)
        deadline = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise VerifierTimeout(f"no verdict within {seconds:g} s")
            if poll.poll(min(left, _WATCH_SECONDS) * 1000):
                chunk = os.read(fd, 65_536)
                if not chunk:
                    raise VerifierCrashed(f"the verifier process died ({self._status()})")
                self.buffer += chunk
            elif self._resident() > self.memory:
                raise VerifierMemory(f"the verifier used more than {self.memory >> 20} MB")
        line, _, self.buffer = self.buffer.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _resident(self) -> int:
        """Resident memory in bytes; 0 where /proc does not exist (the address space is bounded there)."""
        try:
            fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        except OSError:
            return 0
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def _status(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(1)
            return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return "it closed its output"

    def kill(self) -> None:
        """End the process and its group, and reap it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class WorkerPool:
    """Runs jobs in threads; `ask` in a job talks to the worker process of that thread."""

    def __init__(self, workers: int, memory_mb: int) -> None:
        self.memory_mb = memory_mb
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="atropos-verify")
        self._local = threading.local()
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self.replaced = 0

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, job)

    def ask(self, request: dict[str, Any], seconds: float) -> bool:
        """Put one request to this thread's worker. Only inside a job. Raises VerifierError and PluginError."""
        return _value(self._answer(self.warm(request["kind"]), request, seconds))

    def warm(self, kind: str) -> _Worker:
        """This thread's worker, with the packages for that kind imported: neither is part of a deadline."""
        worker: _Worker | None = getattr(self._local, "worker", None)
        if worker is not None and (worker.requests >= MAX_REQUESTS or worker.process.poll() is not None):
            self._drop(worker)
            worker = None
        if worker is None:
            worker = _Worker(self.memory_mb)
            self._local.worker = worker
            with self._lock:
                self._all.add(worker)
        if kind not in worker.loaded:
            _value(self._answer(worker, {"kind": "load", "for": kind}, START_SECONDS))
            worker.loaded.add(kind)
        return worker

    def _answer(self, worker: _Worker, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        try:
            reply = worker.ask(request, seconds)
            if reply.get("error") == "memory":
                raise VerifierMemory("the verifier reached its memory limit")
        except VerifierError:
            self.replaced += 1
            self._drop(worker)
            raise
        return reply

    def _drop(self, worker: _Worker) -> None:
        self._local.worker = None
        with self._lock:
            self._all.discard(worker)
        worker.kill()

    def pids(self) -> list[int]:
        """The process ids of the workers that are alive."""
        with self._lock:
            return [worker.process.pid for worker in self._all]

    def close(self) -> None:
        """Stop all workers. Jobs that are running fail. Does nothing in a forked child."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            workers, self._all = self._all, set()
        for worker in workers:
            worker.kill()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _value(reply: dict[str, Any]) -> bool:
    error = reply.get("error")
    if error is None:
        return bool(reply["value"])
    if error == "gold":
        raise GoldError(reply["message"])
    if error == "missing":
        extra = _EXTRAS.get(str(reply["message"]), "math")
        raise PluginError(
            f"this reward needs the package {reply['message']}", hint=f"pip install 'atropos-verify[{extra}]'"
        )
    raise VerifierError(f"the verifier failed: {reply['message']}")


_pools: dict[tuple[int, int, int], WorkerPool] = {}
_pools_lock = threading.Lock()


def shared_pool(workers: int | None = None, memory_mb: int = 1024) -> WorkerPool:
    """The pool of this process for these limits; started on first use, stopped at exit."""
    count = workers or min(4, os.cpu_count() or 1)
    if count < 1 or memory_mb < 64:
        raise ConfigError(f"workers={count} and memory_mb={memory_mb}: at least 1 worker and 64 MB are needed")
    key = (os.getpid(), count, memory_mb)
    with _pools_lock:
        if key not in _pools:
            _pools[key] = WorkerPool(count, memory_mb)
            atexit.register(_pools[key].close)
        return _pools[key]
