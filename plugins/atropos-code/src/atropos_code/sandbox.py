"""Run untrusted Python programs: no network, a read-only view of the system, limits, no trace left.

    with Sandbox() as sandbox:
        result = sandbox.run("print(6 * 7)")          # result.outcome == "ran_with_output", result.reward == 1.0
    result = await shared_sandbox().run_async("print(6 * 7)")

Programs run in boxes, which are warm processes forked for each run; see docs of `isolation` for how
far they are shut in on this machine. One Sandbox may be used from any number of threads.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from atropos_cli.sdk.isolation import BoxClosed, BoxPool, WorkerError, memory_files, private_folder
from atropos_code.errors import SandboxError
from atropos_code.isolation import Isolation, detect
from atropos_code.outcomes import TESTS_S, Limits, Outcome, RunResult, classify
from atropos_code.suite import Suite, TestResult, verdicts

__all__ = ["Isolation", "Limits", "Outcome", "RunResult", "Sandbox", "SandboxError", "shared_sandbox"]

T = TypeVar("T")

KEPT_OF_STDERR = 4000
CLOSED = "the sandbox is closed"


class Sandbox:
    """A pool of boxes. `workers` programs run at a time; further ones wait."""

    def __init__(self, *, isolation: str = "auto", workers: int | None = None) -> None:
        self.workers = workers or max(2, len(os.sched_getaffinity(0)))
        self._wanted = isolation
        self._isolation: Isolation | None = None
        self._pool = BoxPool(lambda hash_seed: self.isolation.make_box(hash_seed))
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(self.workers)
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False

    # -- use

    @property
    def isolation(self) -> Isolation:
        """How programs are shut in here; found out on first use. Raises SandboxError when not as asked for."""
        with self._lock:
            if self._isolation is None:
                self._isolation = detect(self._wanted)
            return self._isolation

    def run(self, code: str, *, stdin: str = "", limits: Limits | None = None, hash_seed: int = 0) -> RunResult:
        """Run a program as a file of its own. Raises SandboxError only when the sandbox itself fails."""
        limits = limits or Limits()
        if not code.strip():
            return RunResult("no_code")
        return self._in_box(lambda: self._run(code, stdin, limits, hash_seed))

    def test(self, code: str, suite: Suite, *, limits: Limits | None = None) -> TestResult:
        """Run the tests of a suite against the functions of a program; see `suite`."""
        limits = limits or Limits(timeout_s=TESTS_S)
        if not code.strip():
            return TestResult.of_failure(suite, "no_code", "the reply holds no code")
        return self._in_box(lambda: self._test(code, suite, limits))

    async def run_async(
        self, code: str, *, stdin: str = "", limits: Limits | None = None, hash_seed: int = 0
    ) -> RunResult:
        """run() without blocking the event loop."""
        return await self._in_thread(lambda: self.run(code, stdin=stdin, limits=limits, hash_seed=hash_seed))

    async def test_async(self, code: str, suite: Suite, *, limits: Limits | None = None) -> TestResult:
        """test() without blocking the event loop."""
        return await self._in_thread(lambda: self.test(code, suite, limits=limits))

    def close(self) -> None:
        """End all boxes. Runs in progress end first."""
        with self._lock:
            self._closed = True
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=True, cancel_futures=True)
        self._pool.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- runs

    def _in_box(self, job: Callable[[], T]) -> T:
        with self._slots:
            try:
                return self._pool.again(job)
            except BoxClosed:
                raise SandboxError(CLOSED) from None
            except (WorkerError, OSError) as error:
                raise SandboxError(f"no sandbox: {error}") from None

    def _run(self, code: str, stdin: str, limits: Limits, hash_seed: int) -> RunResult:
        files = {"payload": _source(code), "stdin": stdin.encode("utf-8", "replace"), "stdout": b"", "stderr": b""}
        with self._pool.lease(hash_seed=hash_seed) as (box,), memory_files(files) as fds, private_folder(box) as folder:
            box.send(fds, self._limits(limits), folder=folder)
            answer = box.answer(limits.timeout_s)
            size = os.fstat(fds["stdout"]).st_size
            stdout = os.pread(fds["stdout"], limits.output_kb << 10, 0)
            return classify(answer, stdout, size > limits.output_kb << 10, _tail(fds["stderr"]))

    def _test(self, code: str, suite: Suite, limits: Limits) -> TestResult:
        nonce = secrets.token_hex(16)
        ours = {"payload": suite.payload(nonce), "stdin": b"", "stdout": b"", "stderr": b"", "verdict": b""}
        theirs = {"payload": _source(code), "stdin": b"", "stdout": b"", "stderr": b""}
        with (
            self._pool.lease(2) as (judge, candidate), _links() as links,
            memory_files(ours) as judge_fds, memory_files(theirs) as program_fds,
            private_folder(judge) as judge_folder, private_folder(candidate) as folder,
        ):  # fmt: skip
            # The judge outlives the program a little, to say which tests it was too slow for.
            patient = replace(limits, timeout_s=limits.timeout_s + 1.0)
            files = {**judge_fds, "link": links[0].fileno()}
            judge.send(files, self._limits(patient), folder=judge_folder, role="tests", trusted=True)
            files = {**program_fds, "link": links[1].fileno()}
            candidate.send(files, self._limits(limits), folder=folder, role="solution")
            for link in links:
                link.close()
            judge.answer(patient.timeout_s)
            candidate.stop()
            answer = candidate.answer(limits.timeout_s)
            verdict = os.pread(judge_fds["verdict"], 1 << 24, 0)
            run = classify(answer, b"", False, _tail(program_fds["stderr"]))
            return verdicts(suite, nonce, verdict, run)

    def _limits(self, limits: Limits) -> dict[str, Any]:
        fields = {name: getattr(limits, name) for name in Limits.__slots__}
        if not self.isolation.can_limit_processes:
            fields["processes"] = 0
        elif self.isolation.counts_all_processes:
            fields["processes_of_user"] = _processes_of_user()
        return fields

    async def _in_thread(self, function: Callable[[], T]) -> T:
        with self._lock:
            if self._closed:
                raise SandboxError(CLOSED)
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="atropos-code")
            threads = self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, function)


@contextlib.contextmanager
def _links() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a connection between two boxes."""
    links = socket.socketpair()
    try:
        yield links
    finally:
        for link in links:
            link.close()


def _source(code: str) -> bytes:
    """The program as a file. Half surrogate pairs cannot be written; they become bytes that do not compile."""
    return code.encode("utf-8", "surrogatepass")


def _tail(fd: int) -> str:
    size = os.fstat(fd).st_size
    return os.pread(fd, KEPT_OF_STDERR, max(0, size - KEPT_OF_STDERR)).decode("utf-8", "replace")


def _processes_of_user() -> int:
    """Threads of this user now: the kernel counts them all against the limit where there is no namespace."""
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == os.getuid():
                    count += len(os.listdir(f"/proc/{entry.name}/task"))  # noqa: PTH208
    return count


_shared: dict[str, Sandbox] = {}
_shared_lock = threading.Lock()


def shared_sandbox(isolation: str = "auto") -> Sandbox:
    """The process's own sandbox, made on first use and closed at exit."""
    with _shared_lock:
        sandbox = _shared.get(isolation)
        if sandbox is None:
            sandbox = _shared[isolation] = Sandbox(isolation=isolation)
            atexit.register(sandbox.close)
        return sandbox
