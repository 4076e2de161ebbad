"""How a program ended, by the rules of reward levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

RUN_S = 5.0
TESTS_S = 10.0
"""Wall-clock seconds for a program, and for a program with its tests, where nothing else is set."""

Outcome = Literal["ran_with_output", "ran_without_output", "syntax_error", "runtime_error", "timeout", "no_code"]
REWARDS: dict[Outcome, float] = {
    "ran_with_output": 1.0,
    "ran_without_output": 0.5,
    "syntax_error": -0.5,
    "no_code": -0.5,
    "runtime_error": -1.0,
    "timeout": -1.0,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use.

    timeout_s: wall clock. memory_mb: address space of each process, and memory of all together.
    processes: processes and threads. output_kb: more on standard output than this is an error.
    file_mb: the largest file it may write. tmp_mb: all files together.
    """

    timeout_s: float = RUN_S
    memory_mb: int = 1024
    processes: int = 32
    open_files: int = 128
    output_kb: int = 1024
    file_mb: int = 16
    tmp_mb: int = 64


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a program ended.

    stdout: what it wrote, cut at the limit. stderr: the last of it. status: exit status, negative for a
    signal; None when it was ended for a limit. limit: "memory", "processes" or "output" when that ended it
    (memory also when it died of a MemoryError of its own).
    """

    outcome: Outcome
    stdout: str = ""
    stderr: str = ""
    status: int | None = None
    limit: str | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def reward(self) -> float:
        """1.0 ran with output, 0.5 without, -0.5 does not compile (or no code), -1.0 error or timeout."""
        return REWARDS[self.outcome]

    @property
    def ran(self) -> bool:
        """The program ended by itself with status 0."""
        return self.outcome in ("ran_with_output", "ran_without_output")


def classify(answer: dict[str, Any], stdout: bytes, too_much_output: bool, stderr: str) -> RunResult:
    """The result of one run from the box's answer.

    First whether the source compiles, then how the process ended; output counts only for a program that
    ended well, and only if something is left of it after trimming.
    """
    phase, status, ended = str(answer.get("phase", "")), answer.get("status"), answer["ended"]
    text = stdout.decode("utf-8", "replace")
    wall, cpu = float(answer["wall_s"]), float(answer["cpu_s"])
    limit = ended if ended in ("memory", "processes") else None
    if ended == "exit" and phase.startswith("syntax: "):
        return RunResult("syntax_error", stderr=phase.removeprefix("syntax: "), status=status, wall_s=wall, cpu_s=cpu)
    if ended == "exit" and not phase and status is not None and status < 0:
        # The compiler itself crashed on it.
        return RunResult("syntax_error", stderr=stderr, status=status, wall_s=wall, cpu_s=cpu)
    if ended == "timeout":
        return RunResult("timeout", text, stderr, wall_s=wall, cpu_s=cpu)
    if limit is None and too_much_output:
        limit = "output"
    elif limit is None and status and stderr.rstrip().rpartition("\n")[2].startswith("MemoryError"):
        limit = "memory"
    if ended != "exit" or status != 0 or limit is not None:
        return RunResult("runtime_error", text, stderr, status, limit, wall, cpu)
    outcome: Outcome = "ran_with_output" if text.strip() else "ran_without_output"
    return RunResult(outcome, text, stderr, status, None, wall, cpu)
