"""Tests of a program's functions, and the verdict on them.

The tests run in a box of their own; the program sees the arguments of calls, never the tests, the
expected values or the verdict (see `inside.judge`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from atropos_code.outcomes import RunResult

Verdict = Literal[
    "passed",  # every test
    "failed",  # a test's assertion
    "error",  # a call raised
    "missing_function",  # a name that the tests call is not defined
    "load_error",  # the program raised or ended before its functions were there, or ended while one was called
    "syntax_error",
    "timeout",
    "memory",
    "processes",
    "no_code",
]


@dataclass(frozen=True, slots=True)
class Suite:
    """What to check.

    names: the functions (or classes, values) that come from the program; all other names in the tests
    mean what they mean to Python, the imports and `support`. Order: imports, support, names, setup, tests.
    """

    tests: tuple[str, ...]
    names: tuple[str, ...]
    imports: tuple[str, ...] = ()
    support: str = ""
    setup: str = ""

    def payload(self, nonce: str) -> bytes:
        """What the judge is given."""
        fields = {
            "nonce": nonce,
            "tests": self.tests,
            "names": self.names,
            "imports": self.imports,
            "support": self.support,
            "setup": self.setup,
        }
        return json.dumps(fields).encode()


@dataclass(frozen=True, slots=True)
class TestResult:
    """The verdict. passed: how many tests. error: "Type: text" of the first test that failed."""

    __test__ = False

    verdict: Verdict
    passed: int
    total: int
    error: str | None = None
    wall_s: float = 0.0

    @property
    def reward(self) -> float:
        """1.0 when every test passed, else 0.0."""
        return 1.0 if self.verdict == "passed" else 0.0

    @property
    def level(self) -> float:
        """By the levels of `code_runs`: 1.0 passed, -0.5 does not compile or no code, -1.0 for all else."""
        return {"passed": 1.0, "syntax_error": -0.5, "no_code": -0.5}.get(self.verdict, -1.0)

    @classmethod
    def of_failure(cls, suite: Suite, verdict: Verdict, error: str, wall_s: float = 0.0) -> TestResult:
        """No test passed, all for one reason."""
        return cls(verdict, 0, len(suite.tests), error, wall_s)


def verdicts(suite: Suite, nonce: str, written: bytes, run: RunResult) -> TestResult:
    """The result from the judge's lines and how the program's own process ended."""
    lines = [line for line in map(_line, written.splitlines()) if line.get("nonce") == nonce]
    passed = sum(1 for line in lines if line.get("passed") is True)
    total = len(suite.tests)
    if total and passed == total == len(lines):
        return TestResult("passed", passed, total, None, run.wall_s)
    if run.outcome == "syntax_error":
        return TestResult("syntax_error", 0, total, run.stderr[:500], run.wall_s)
    first = next((line["error"] for line in lines if line.get("error")), None)
    error = f"{first[0]}: {first[1]}" if first else None
    if run.outcome == "timeout" or len(lines) < total:
        return TestResult("timeout", passed, total, error or "the tests took too long", run.wall_s)
    if run.limit in ("memory", "processes"):
        return TestResult(run.limit, passed, total, error, run.wall_s)  # type: ignore[arg-type]
    verdict: Verdict = "error"
    if first is not None:
        loading = any(line.get("stage") == "load" for line in lines)
        verdict = _KINDS.get(first[0], "error")
        if loading and verdict != "memory":
            verdict = "load_error"
    return TestResult(verdict, passed, total, error, run.wall_s)


_KINDS: dict[str, Verdict] = {
    "AssertionError": "failed",
    "Missing": "missing_function",
    "WireError": "load_error",
    "MemoryError": "memory",
}


def _line(data: bytes) -> dict[str, Any]:
    try:
        line = json.loads(data)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}
