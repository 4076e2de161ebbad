"""Judge a reply to a task: extract the program, run it or its tests, remember the verdict.

Episodes judge as replies come in, and rewards judge again when they score; the memory makes the second
time free. What is remembered depends on the code, the tests and the limits only.
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
import json
import math
import threading
from dataclasses import replace
from typing import Any, Generic, TypeVar

from atropos_cli.sdk import DataError, Task
from atropos_cli.sdk.isolation import stored_isolation
from atropos_code.extract import extract_code
from atropos_code.outcomes import RUN_S, TESTS_S, Limits, RunResult
from atropos_code.sandbox import shared_sandbox
from atropos_code.suite import Suite, TestResult
from atropos_code.syntax import strength

T = TypeVar("T")
REMEMBERED = 4096


class _Memory(Generic[T]):
    """The latest results by key. Safe for threads."""

    def __init__(self) -> None:
        self._results: collections.OrderedDict[str, T] = collections.OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> T | None:
        with self._lock:
            return self._results.get(key)

    def put(self, key: str, value: T) -> None:
        with self._lock:
            self._results[key] = value
            while len(self._results) > REMEMBERED:
                self._results.popitem(last=False)


_runs: _Memory[RunResult] = _Memory()
_tests: _Memory[TestResult] = _Memory()


def _key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _options(task: Task) -> dict[str, Any]:
    options = task.info.get("sandbox")
    return options if isinstance(options, dict) else {}


def limits_of(task: Task, default_s: float) -> Limits:
    """The limits that a task states in info["sandbox"]; the defaults for the rest."""
    options = _options(task)
    usual = Limits(timeout_s=default_s)
    return replace(
        usual,
        timeout_s=_number(task, options, "timeout_s", usual.timeout_s),
        memory_mb=int(_number(task, options, "memory_mb", usual.memory_mb)),
    )


def _number(task: Task, options: dict[str, Any], key: str, usual: float) -> float:
    value = options.get(key, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise DataError(f"task {task.id}: info.sandbox.{key} is {value!r}, not a number above 0")
    return value


def code_of(task: Task, reply: str) -> str:
    """The code in a reply to the task, unchanged; empty when there is none."""
    return extract_code(reply, names=_names(task), done_marker=task.info.get("layout") == "plain")


def _names(task: Task) -> list[str]:
    """What the tests of a task need from a program."""
    names = task.info.get("names")
    return [str(name) for name in names] if isinstance(names, list) else []


def program_of(task: Task, reply: str) -> str:
    """The whole program that a reply to the task means: its code, with what the task puts before it.

    info["prefix"] (imports and helpers that the prompt showed) precedes code that defines what is
    asked for; other code is preceded by info["stem"], the beginning of the function, if there is one.
    """
    code = code_of(task, reply)
    if not code.strip():
        return ""
    prefix, stem = str(task.info.get("prefix") or ""), str(task.info.get("stem") or "")
    if stem and not any(strength(code, name) for name in _names(task)):
        return stem + code
    return f"{prefix}\n{code}" if prefix else code


def suite_of(task: Task) -> Suite | None:
    """The tests in a task's info ("tests", "names", "imports", "support", "setup"), None without. Raises DataError."""
    tests = task.info.get("tests")
    if not tests:
        return None
    names = task.info.get("names")
    if not isinstance(tests, list) or not isinstance(names, list) or not names:
        raise DataError(
            f"task {task.id}: info has no list of tests and of the names that they call",
            hint='"tests": ["assert f(1) == 2"], "names": ["f"]',
        )
    imports = task.info.get("imports")
    return Suite(
        tests=tuple(str(test) for test in tests),
        names=tuple(str(name) for name in names),
        imports=tuple(str(line) for line in imports) if isinstance(imports, list) else (),
        support=str(task.info.get("support") or ""),
        setup=str(task.info.get("setup") or ""),
    )


async def run_reply(task: Task, reply: str) -> RunResult:
    """Run the program in a reply."""
    code, limits = program_of(task, reply), limits_of(task, RUN_S)
    key = _key(code, limits)
    result = _runs.get(key)
    if result is None:
        result = await _sandbox(task).run_async(code, limits=limits)
        _runs.put(key, result)
    return result


async def test_reply(task: Task, suite: Suite, reply: str) -> TestResult:
    """Run the tests against the program in a reply."""
    return await test_program(task, suite, program_of(task, reply))


async def test_program(task: Task, suite: Suite, code: str) -> TestResult:
    """Run the tests against a program."""
    limits = limits_of(task, TESTS_S)
    key = _key(code, suite, limits)
    result = _tests.get(key)
    if result is None:
        result = await _sandbox(task).test_async(code, suite, limits=limits)
        _tests.put(key, result)
    return result


async def run_twice(task: Task, code: str) -> tuple[RunResult, RunResult]:
    """Run a program with two hash seeds, for what varies with the order of sets and the like."""
    sandbox, limits = _sandbox(task), limits_of(task, RUN_S)
    first, second = await asyncio.gather(
        sandbox.run_async(code, limits=limits, hash_seed=0), sandbox.run_async(code, limits=limits, hash_seed=1)
    )
    return first, second


def _sandbox(task: Task) -> Any:
    return shared_sandbox(stored_isolation(_options(task).get("isolation")))
