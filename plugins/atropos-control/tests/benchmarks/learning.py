"""How much CPU time the presets take to reach their goals. Minutes each: not part of the tests.

    python plugins/atropos-control/tests/benchmarks/learning.py [NAME ...]      names of RUNS; default: all

Prints a table: success rate and return at the last evaluation, environment steps, CPU seconds of all processes.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RUNS = {
    "cartpole-ppo": ("ppo", "CartPole-v1"),
    "cartpole-grpo": ("grpo", "CartPole-v1"),
    "reach-dense-ppo": ("ppo", "FetchReachDense-v4"),
    "reach-sac-her": ("sac", "FetchReach-v4"),
    "reach-grpo": ("grpo", "FetchReach-v4"),
}


def measured(method: str, name: str, folder: Path) -> str:
    """One row of the table."""
    before = spent()
    words = ["train", method, "--env", f"gymnasium:{name}", "--output", str(folder), "--videos", "0"]
    subprocess.run([sys.executable, "-m", "atropos_cli", *words], check=True, stderr=subprocess.DEVNULL)
    rows: list[dict[str, Any]] = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    suite = f"eval/gymnasium:{name}"
    steps = {row["step"]: row["env_steps"] for row in rows if row["kind"] == "train"}
    found = [row for row in rows if row["kind"] == "eval"]
    goal = next((row["step"] for row in found if row["step"] and row[f"{suite}/accuracy"] >= 0.95), None)
    first = "not reached" if goal is None else f"{steps[goal]:.0f}"
    last = found[-1]
    ends = f"{last[f'{suite}/accuracy']:.2f} | {last[f'{suite}/reward']:.1f} | {max(steps.values()):.0f} | {first}"
    return f"| {method} | {name} | {ends} | {spent() - before:.0f} |"


def spent() -> float:
    """CPU seconds of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Run those that are named."""
    print(
        "| method | environment | success | return | steps | steps until 0.95 | CPU s |\n|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or RUNS:
            print(measured(*RUNS[name], Path(folder) / name), flush=True)


if __name__ == "__main__":
    main()
