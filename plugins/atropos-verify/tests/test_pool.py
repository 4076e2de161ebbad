"""The worker processes: deadlines, memory, crashes, threads and event loops, and what is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from atropos_verify.errors import GoldError, VerifierCrashed, VerifierError, VerifierMemory, VerifierTimeout
from atropos_verify.pool import WorkerPool, shared_pool

from atropos_cli.sdk import ConfigError

SQRT = {"kind": "math", "gold": "2\\sqrt{2}", "answer": "\\sqrt{8}"}
BACKTRACK = {"kind": "regex", "pattern": "(a+)+b", "flags": 0, "text": "a" * 40, "full": False}


@pytest.fixture
def pool() -> WorkerPool:
    made = WorkerPool(1, 1024)
    yield made
    made.close()


def ask(pool: WorkerPool, request: dict, seconds: float = 60.0) -> bool:
    return asyncio.run(pool.run(lambda: pool.ask(request, seconds)))


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_warm_worker_is_reused(pool: WorkerPool) -> None:
    assert ask(pool, SQRT)
    first = pool.pids()
    assert not ask(pool, {**SQRT, "answer": "\\sqrt{7}"})
    assert pool.pids() == first
    assert pool.replaced == 0


def test_deadline_kills_reaps_and_replaces(pool: WorkerPool) -> None:
    assert ask(pool, {**BACKTRACK, "text": "ab"})
    [pid] = pool.pids()
    begin = time.monotonic()
    with pytest.raises(VerifierTimeout, match=r"0\.3 s"):
        ask(pool, BACKTRACK, 0.3)
    assert time.monotonic() - begin < 10
    assert gone(pid)
    assert pool.pids() == []
    assert ask(pool, {**BACKTRACK, "text": "ab"})
    assert pool.replaced == 1


def test_memory_limit() -> None:
    small = WorkerPool(1, 130)
    try:
        with pytest.raises((VerifierMemory), match="130 MB"):
            ask(small, {"kind": "math", "gold": "x+y", "answer": "(x+y+z+w)^{400}"})
        assert ask(small, {**BACKTRACK, "text": "ab"})
    finally:
        small.close()


def test_crash_during_a_request(pool: WorkerPool) -> None:
    assert ask(pool, {**BACKTRACK, "text": "ab"})
    [pid] = pool.pids()
    killer = threading.Timer(0.3, os.kill, (pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(VerifierCrashed, match="SIGKILL"):
        ask(pool, BACKTRACK, 30.0)
    killer.join()
    assert ask(pool, {**BACKTRACK, "text": "ab"})


def test_death_between_requests_costs_nobody(pool: WorkerPool) -> None:
    assert ask(pool, {**BACKTRACK, "text": "ab"})
    [pid] = pool.pids()
    os.kill(pid, signal.SIGKILL)
    while not _is_zombie_or_gone(pid):
        time.sleep(0.01)
    assert ask(pool, {**BACKTRACK, "text": "ab"})


def _is_zombie_or_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_errors_of_the_reference_are_told_apart(pool: WorkerPool) -> None:
    with pytest.raises(GoldError, match="pattern"):
        ask(pool, {**BACKTRACK, "pattern": "("})
    with pytest.raises(GoldError, match="schema is not valid"):
        ask(pool, {"kind": "schema", "schema": {"type": "nonsense"}, "value": 1})
    with pytest.raises(GoldError, match="does not hold"):
        ask(pool, {"kind": "schema", "schema": {"$ref": "http://localhost:9/x.json"}, "value": 1})
    with pytest.raises(VerifierError, match="KeyError"):
        ask(pool, {"kind": "regex"})
    assert pool.replaced == 0


async def test_many_at_once_from_one_loop_and_many_threads() -> None:
    """Field report E14: the verdict does not depend on the thread that asks for it."""
    pool = WorkerPool(2, 1024)
    try:
        requests = [{"kind": "math", "gold": f"2\\sqrt{{{n}}}", "answer": f"\\sqrt{{{4 * n}}}"} for n in range(2, 42)]
        jobs = [pool.run(lambda request=request: pool.ask(request, 60.0)) for request in requests]
        results = await asyncio.gather(*jobs)
        assert results == [True] * 40
        assert len(pool.pids()) <= 2
        from_threads: list[bool] = []
        threads = [threading.Thread(target=lambda: from_threads.append(ask(pool, SQRT))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert from_threads == [True] * 4
    finally:
        pool.close()


def test_no_zombies_and_no_open_files_after_many_deaths(pool: WorkerPool) -> None:
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(VerifierTimeout):
            ask(pool, BACKTRACK, 0.05)
    assert pool.pids() == []
    assert len(os.listdir("/proc/self/fd")) == files
    children = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "stat="], capture_output=True, text=True).stdout
    assert "Z" not in children


def test_workers_end_with_the_program() -> None:
    code = (
        "import asyncio\nfrom atropos_verify.pool import shared_pool\n"
        "p = shared_pool(1)\n"
        "ask = {'kind': 'regex', 'pattern': 'a', 'flags': 0, 'text': 'a', 'full': True}\n"
        "asyncio.run(p.run(lambda: p.ask(ask, 60)))\n"
        "print(p.pids()[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    deadline = time.monotonic() + 10
    while not _is_zombie_or_gone(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _is_zombie_or_gone(pid)


def test_secrets_do_not_reach_the_worker(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-value")
    assert ask(pool, {**BACKTRACK, "text": "ab"})
    with open(f"/proc/{pool.pids()[0]}/environ", "rb") as file:
        assert b"secret-value" not in file.read()


def test_shared_pool_is_one_for_the_same_limits() -> None:
    assert shared_pool(1) is shared_pool(1)
    assert shared_pool(1) is not shared_pool(1, 2048)
    with pytest.raises(ConfigError):
        shared_pool(1, 8)


SYMPY = """
import importlib.util, json, sys
def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
worker = load("worker", sys.argv[1])
import sympy
worker.GUARD = worker.guard(sys.argv[2])
worker.KINDS["text"] = lambda request: bool(sympy.sympify(request["text"]) == 4)
for text in json.loads(sys.argv[3]):
    print(json.dumps(worker.answer(json.dumps({"kind": "text", "seconds": 5, "text": text}))))
"""


def test_sympy_evaluates_only_what_can_do_nothing() -> None:
    """Numbers of a LaTeX text become sympy's by its parser, which is eval(): there the text is looked at."""
    from atropos_verify import worker

    from atropos_cli.sdk.isolation import guard_file

    harmless = ["4", "2 + 2", "sqrt(16)", "8 * x / (2 * x)"]
    hostile = [
        "__import__('os').getpid()",
        "x.__class__",
        "(lambda: 4)()",
        "[4 for n in (1,)][0]",
        "open('/tmp/x')",
        "exec('x=1') or 4",
        "sin('__import__(\"os\").getpid()')",
        "-" * 2500 + "print(4)",
    ]
    command = [sys.executable, "-c", SYMPY, str(worker.__file__), guard_file(), json.dumps([*harmless, *hostile])]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    replies = [json.loads(line) for line in lines]
    assert replies[: len(harmless)] == [{"value": True}] * len(harmless)
    for text, reply in zip(hostile, replies[len(harmless) :], strict=True):
        assert reply.get("error") == "failed" or reply == {"value": False}, text
    assert sum("not evaluated" in reply.get("message", "") for reply in replies) >= len(hostile) - 1
