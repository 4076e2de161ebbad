"""How much a sandboxed run costs, and how many fit into a second. Run as a script.

    python plugins/atropos-code/tests/benchmarks/runs.py [LEVEL ...]

CPU milliseconds count everything: this process, the zygote and the program. Not for level "bubblewrap", whose
processes end in a namespace of their own and are not accounted to us. The baseline is a fresh
`python -I -X utf8 -c` of the same program, without any protection.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from atropos_code.errors import SandboxError
from atropos_code.sandbox import Sandbox
from atropos_code.suite import Suite

PROGRAM = "print(sum(range(10)))"
FUNCTION = "def f(x): return x + 1"
SUITE = Suite(tests=("assert f(1) == 2", "assert f(2) == 3", "assert f(3) == 4"), names=("f",))
RUNS = 200


def cpu() -> float:
    """CPU seconds of this process and of all its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def fresh() -> None:
    subprocess.run([sys.executable, "-I", "-X", "utf8", "-c", PROGRAM], stdout=subprocess.DEVNULL, check=True)


def row(name: str, spent: float, wall: float, count: int) -> None:
    milliseconds = "-" if name.startswith("bubblewrap") else f"{spent / count * 1e3:.1f}"
    print(f"{name:<34} {milliseconds:>10} {count / wall:>10.1f}")


def main(levels: list[str]) -> None:
    print(f"{'':<34} {'CPU ms/run':>10} {'runs/s':>10}   ({os.cpu_count()} CPUs, {RUNS} runs, 2 at a time)")
    before, began = cpu(), time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: fresh(), range(RUNS // 4)))
    row("python -I, unprotected", cpu() - before, time.perf_counter() - began, RUNS // 4)
    for level in levels:
        for name in ("run", "test"):
            count = RUNS if level != "bubblewrap" else RUNS // 4
            before = cpu()
            with Sandbox(isolation=level, workers=2) as sandbox, ThreadPoolExecutor(2) as pool:
                try:
                    _ = sandbox.isolation
                except SandboxError as error:
                    print(f"{level}: {error}")
                    break
                began = time.perf_counter()
                if name == "run":
                    ended = list(pool.map(lambda _: sandbox.run(PROGRAM).ran, range(count)))
                else:
                    ended = list(pool.map(lambda _: sandbox.test(FUNCTION, SUITE).reward == 1.0, range(count)))
                wall = time.perf_counter() - began
            assert all(ended)
            # The boxes have ended by now, so their time counts, the start of the boxes included.
            row(
                f"{level}: {'a program' if name == 'run' else 'a program and three tests'}", cpu() - before, wall, count
            )


if __name__ == "__main__":
    main(sys.argv[1:] or ["namespaces", "bubblewrap", "process"])
