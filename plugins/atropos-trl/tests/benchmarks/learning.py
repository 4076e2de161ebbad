"""Does a small real model learn? Runs of `atropos train grpo` over seeds and algorithms, one after the other.

    python plugins/atropos-trl/tests/benchmarks/learning.py FOLDER [--steps 60] [--only NAME ...]

Each run goes to FOLDER/NAME; one that is finished is not made again. Prints a table of held-out greedy accuracy with
its 95 % intervals, as docs/explanation/learning-on-a-laptop.md shows it. About 8 CPU seconds a step.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

RUNS = {
    "dr_grpo-0": ["--algorithm", "dr_grpo", "--seed", "0"],
    "dr_grpo-1": ["--algorithm", "dr_grpo", "--seed", "1"],
    "dr_grpo-2": ["--algorithm", "dr_grpo", "--seed", "2"],
    "grpo-0": ["--algorithm", "grpo", "--seed", "0"],
    "grpo-kl-0": ["--algorithm", "grpo", "--beta", "0.1", "--seed", "0"],
    "two-turns-0": ["--algorithm", "dr_grpo", "--seed", "0", "--trainer", "native"],
    "native-0": ["--algorithm", "dr_grpo", "--seed", "0", "--trainer", "native"],
    "async-0": ["--algorithm", "dr_grpo", "--seed", "0", "--trainer", "native", "--async-steps", "2"],
    "three-processes-0": ["--algorithm", "dr_grpo", "--seed", "0", "--trainer", "native"],
}
SUMS = {
    "kind": "add",
    "max-number": "20",
    "prompt-style": "equation",
    "few-shot": "1",
    "data-seed": "1",  # its example is 12+12=24; that of seed 0, 0+10=10, teaches the wrong thing
}
ATROPOS = (sys.executable, "-m", "atropos_cli")
GAME = f"{Path(__file__).with_name('second_chance.py')}:SecondChance"


def sums() -> list[str]:
    """The environment's options."""
    return [word for name, value in SUMS.items() for word in (f"--env.{name}", value)]


def sampling() -> list[str]:
    """How rollouts are made."""
    model = ["--model", "smollm2", "--backend.chat-template", "plain"]
    return [*model, "--group-size", "4", "--max-tokens", "4", "--stop", "\n"]


def command(folder: Path, name: str, given: argparse.Namespace, url: str | None = None) -> list[str]:
    """The command line of one run. url: of a trajectory server."""
    held_out = f"arithmetic:limit={given.limit}"
    if url is not None:
        told = ",".join(f"{name.replace('-', '_')}={value}" for name, value in SUMS.items())
        source = ["--from", url, "--eval", f"{held_out},{told}"]
    elif name.startswith("two-turns"):
        source = ["--env", GAME, "--eval", f"arithmetic={GAME}:limit={given.limit}"]
    else:
        source = ["--env", "arithmetic", *sums(), "--eval", held_out]
    return [
        *(*ATROPOS, "train", "grpo", *source, *sampling(), "--prompts-per-step", "8"),
        *("--learning-rate", "1e-5", "--steps", str(given.steps), "--save-every", str(given.steps)),
        *("--eval-every", str(given.eval_every)),
        *("--keep-checkpoints", "1", "--output", str(folder / name), *RUNS[name]),
    ]


@contextlib.contextmanager
def others(folder: Path, name: str, environment: dict[str, str]) -> Iterator[str | None]:
    """The trajectory server and the generator of a run of three processes; gives the server's address."""
    if not name.startswith("three-processes"):
        yield None
        return
    with (folder / f"{name}.others.log").open("w") as log:
        words = [*ATROPOS, "serve", str(folder / f"{name}.queue"), "--port", "0"]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        words = [*ATROPOS, "gen", "arithmetic", *sums(), *sampling(), "--temperature", "1", "--limit", "2000"]
        words += ["--off-policy", "1", "--workers", "4", "--to", url, "--output", str(folder / f"{name}.gen")]
        generator = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
        try:
            yield url
        finally:
            for process in (generator, server):
                process.terminate()
                process.wait(timeout=120)


def finished(run: Path) -> bool:
    """Has this run been made already?"""
    state = run / "train.json"
    return state.exists() and json.loads(state.read_text())["state"] == "finished"


def main() -> None:
    """Make the runs that are missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--eval-every", type=int, default=10)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--plot", type=Path, help="write a chart of reward and accuracy by step (needs matplotlib)")
    parser.add_argument("--only", nargs="*", choices=list(RUNS), default=list(RUNS))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    for name in given.only:
        log = given.folder / f"{name}.log"
        if not finished(given.folder / name):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            with log.open("w") as file, others(given.folder, name, environment) as url:
                words = command(given.folder, name, given, url)
                subprocess.run(words, stdout=file, stderr=file, env=environment, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            (given.folder / f"{name}.cpu").write_text(f"{seconds:.0f} {after.ru_maxrss // 1024}\n")
    print("| run | " + "held-out greedy accuracy at step: 95 % interval | CPU s | peak MB |\n|---|---|---|---|")
    for name in given.only:
        rows = [json.loads(line) for line in (given.folder / name / "metrics.jsonl").read_text().splitlines()]
        points = [
            f"{row['step']}: {row['eval/arithmetic/accuracy']:.2f} "
            f"({row['eval/arithmetic/accuracy_low']:.2f} to {row['eval/arithmetic/accuracy_high']:.2f})"
            for row in rows
            if row["kind"] == "eval"
        ]
        cpu = given.folder / f"{name}.cpu"
        cost, peak = cpu.read_text().split() if cpu.exists() else ("", "")
        print(f"| {name} | {', '.join(points)} | {cost} | {peak} |")
    if given.plot is not None:
        plot(given.folder, given.only, given.plot)


def plot(folder: Path, names: list[str], file: Path) -> None:
    """Left: held-out greedy accuracy with its interval; right: mean reward of each batch of rollouts."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4))
    for name in names:
        rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        evals = [row for row in rows if row["kind"] == "eval"]
        steps = [row["step"] for row in evals]
        line = left.plot(steps, [row["eval/arithmetic/accuracy"] for row in evals], marker="o", label=name)[0]
        low = [row["eval/arithmetic/accuracy_low"] for row in evals]
        high = [row["eval/arithmetic/accuracy_high"] for row in evals]
        left.fill_between(steps, low, high, color=line.get_color(), alpha=0.12)
        steps_trained = [row for row in rows if row["kind"] == "train"]
        right.plot([row["step"] for row in steps_trained], [row["reward"] for row in steps_trained], label=name)
    for axes, title in ((left, "held-out greedy accuracy, 95 % interval"), (right, "mean reward of the rollouts")):
        axes.set(title=title, xlabel="optimiser step", ylim=(0, 1.03))
        axes.grid(alpha=0.3)
    left.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
