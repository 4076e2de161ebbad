"""Is a step faster when rollouts are made beside the optimiser? Runs in turns and asynchronous ones, alternating.

    python plugins/atropos-trl/tests/benchmarks/async_speed.py FOLDER --model M --base-url URL [--steps 6] [--rounds 2]

The server (vLLM with VLLM_SERVER_DEV_MODE=1 and --logprobs-mode processed_logprobs, or SGLang) must be able to read
FOLDER. Prints seconds a step by the clock, the first step left out, and what each side waited. Other load on the
machine changes all of them: the alternation is for that.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
from datetime import datetime
from pathlib import Path
from statistics import mean

from learning import ATROPOS, sums


def seconds(run: Path) -> list[float]:
    """The time of each step after the first, from the end of the one before."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    times = [datetime.fromisoformat(row["time"]).timestamp() for row in rows if row["kind"] == "train"]
    return [after - before for before, after in itertools.pairwise(times)]


def waited(run: Path, side: str) -> str:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [row[name] for row in rows if (name := f"async/{side}_idle") in row]
    return f"{mean(found[1:]):.0%}" if len(found) > 1 else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--async-steps", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=4)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    print("| async-steps | seconds a step | optimiser waited | sampler waited |\n|---|---|---|---|")
    spent: dict[int, list[float]] = {0: [], given.async_steps: []}
    for number in range(2 * given.rounds):
        ahead = given.async_steps * (number % 2)
        run = given.folder / f"{number}-async-{ahead}"
        words = [*ATROPOS, "train", "grpo", "--env", "arithmetic", *sums(), "--trainer", "native"]
        words += ["--model", given.model, "--base-url", given.base_url, "--backend.endpoint", "completions"]
        words += ["--backend.chat-template", "plain", "--backend.tokenizer", given.model]
        words += ["--group-size", "4", "--max-tokens", "4", "--stop", "\n", "--prompts-per-step", str(given.prompts)]
        words += ["--algorithm", "dr_grpo", "--learning-rate", "1e-5", "--save-every", str(given.steps)]
        words += ["--steps", str(given.steps), "--async-steps", str(ahead), "--output", str(run), "--overwrite"]
        with (given.folder / f"{run.name}.log").open("w") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
            subprocess.run(words, stdout=log, stderr=log, env=environment, check=True)
        spent[ahead] += seconds(run)
        print(
            f"| {ahead} | {mean(seconds(run)):.1f} | {waited(run, 'optimiser')} | {waited(run, 'sampler')} |",
            flush=True,
        )
    print(f"\nin turns / asynchronous: {mean(spent[0]) / mean(spent[given.async_steps]):.2f}")


if __name__ == "__main__":
    main()
