"""A long run of text games without a model: does memory stay flat, is nothing left behind, what does a turn cost?

    python tests/benchmarks/textworld_soak.py [--episodes 5000] [--games 200] [--memory] [--whole-games]

Runs `atropos gen` on `--games` different games again and again, played by their own plans (textworld-oracle): by turns
with two alternatives for each reply, or as whole games. Every few seconds the memory of the run and of all its
processes is read (proportional set size). Afterwards it is checked that the memory of the last quarter of the episodes
is within 10 % of that of the second quarter, that no process of the run is left, and no file in its temporary folder.
Exit code 1 when any of that is not so. CPU counts all processes, and the compilers only if the cache lacks a game;
`--warm` first plays each game once.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

ENVIRONMENT = """
from atropos_textworld.environment import TextWorldEnvironment
from atropos_textworld.games import registry
from atropos_textworld.games.spec import GameSpec
from atropos_cli.sdk import Task, TaskStream

class Soak(TextWorldEnvironment):
    name = "textworld"

    def tasks(self, split):
        kinds = list(registry.kinds())

        def make(index):
            number = index % GAMES
            difficulty = "easy" if number // len(kinds) % 2 else "medium"
            spec = GameSpec(kinds[number % len(kinds)], difficulty, 10 * number)
            return Task(id=spec.id, info=spec.as_json())

        return TaskStream(make)
"""
MARK = "TEXTWORLD_SOAK"
ALLOWED_GROWTH = 0.10


@dataclass
class Figures:
    """memory: (episodes done, MB) as read. left_processes, left_files: what should not be there any more."""

    episodes: int = 0
    turns: int = 0
    won: int = 0
    failed: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    memory: list[tuple[int, float]] = field(default_factory=list)
    processes: int = 0
    left_processes: list[str] = field(default_factory=list)
    left_files: list[str] = field(default_factory=list)

    def quarter(self, number: int) -> float:
        """Mean memory in a quarter of the episodes, 0 to 3; NaN when it was not read in it."""
        low, high = number * self.episodes / 4, (number + 1) * self.episodes / 4
        found = [memory for done, memory in self.memory if low <= done < high]
        return statistics.fmean(found) if found else float("nan")

    @property
    def growth(self) -> float:
        """From the second quarter to the last, as a share."""
        return self.quarter(3) / self.quarter(1) - 1


def marked(mark: str) -> list[int]:
    """The processes that were started with this mark in their environment."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if f"{MARK}={mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
            except OSError:
                continue
    return found


def memory_of(pid: int) -> float:
    """MB: private pages and a share of common ones."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def episodes_in(groups: Path, place: int) -> tuple[int, int]:
    """How many more episodes have ended since byte `place`, and the place of now."""
    done = 0
    try:
        with groups.open("rb") as file:
            file.seek(place)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                place += len(line)
                done += b'"last":true' in line[:200]
    except OSError:
        pass
    return done, place


def run(episodes: int, games: int, folder: Path, *, options: list[str], interval: float, backend: str) -> Figures:
    """Play, watch, and look at what is left."""
    mark, figures = uuid.uuid4().hex, Figures()
    (folder / "soak.py").write_text(ENVIRONMENT.replace("GAMES", str(games)))
    temporary, out = folder / "tmp", folder / "run"
    temporary.mkdir(exist_ok=True)
    environment = {**os.environ, MARK: mark, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-c",
        "from atropos_cli.cli.app import main; main()",
        "gen",
        "./soak.py:Soak",
        "--backend",
        backend,
    ]
    command += ["--limit", str(episodes), "-o", str(out), *options]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with (folder / "log.txt").open("wb") as log:
        child = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        done = place = 0
        try:
            while child.poll() is None:
                time.sleep(interval)
                new, place = episodes_in(out / "groups.jsonl", place)
                done += new
                pids = marked(mark)
                figures.processes = max(figures.processes, len(pids))
                figures.memory.append((done, sum(map(memory_of, pids))))
        finally:
            child.terminate()
            child.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures.wall = time.monotonic() - start
    figures.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if child.returncode != 0:
        raise SystemExit((folder / "log.txt").read_text()[-3000:])
    _count(out, figures)
    time.sleep(1)
    figures.left_processes = [Path(f"/proc/{pid}/cmdline").read_text() for pid in marked(mark)]
    figures.left_files = [str(path) for path in temporary.rglob("*")]
    return figures


def _count(out: Path, figures: Figures) -> None:
    with (out / "groups.jsonl").open() as lines:
        for line in lines:
            group = json.loads(line)
            figures.turns += group.get("turn") is not None
            for rollout in group["rollouts"]:
                figures.failed += rollout.get("failure") is not None
                if "won" in rollout.get("info", {}):
                    figures.episodes += 1
                    figures.won += rollout.get("info", {})["won"]
                    figures.turns += rollout.get("info", {})["steps"] if group.get("turn") is None else 0


def report(figures: Figures) -> list[str]:
    """The figures as text; what is wrong, last."""
    quarters = ", ".join(f"{figures.quarter(number):.0f}" for number in range(4))
    turns = max(figures.turns, 1)
    lines = [
        f"episodes {figures.episodes}, won {figures.won}, failed rollouts {figures.failed}, turns {figures.turns}",
        (
            f"CPU {figures.cpu:.0f} s: {1000 * figures.cpu / turns:.1f} ms a turn; wall {figures.wall:.0f} s, "
            f"load {os.getloadavg()[0]:.1f}"
        ),
        (
            f"memory by quarters of the episodes: {quarters} MB (PSS of up to {figures.processes} processes), "
            f"most {max((mb for _, mb in figures.memory), default=0):.0f} MB"
        ),
    ]
    problems = [f"left process: {line!r}" for line in figures.left_processes]
    problems += [f"left file: {path}" for path in figures.left_files]
    if figures.growth > ALLOWED_GROWTH:
        problems.append(f"memory grew by {100 * figures.growth:.0f} % from the second quarter to the last")
    return lines + [f"WRONG: {problem}" for problem in problems]


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=5000)
    parser.add_argument("--games", type=int, default=200)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--whole-games", action="store_true")
    parser.add_argument("--warm", action="store_true", help="play each game once before, so that all are compiled")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between readings of memory")
    parser.add_argument("--backend", default="textworld-oracle")
    arguments = parser.parse_args()
    options = ["--workers", str(arguments.workers), "--group-size", "1" if arguments.whole_games else "2"]
    if not arguments.whole_games:
        options += ["--group-by", "turn"]
    if arguments.memory:
        options.append("--memory")
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        for episodes in [arguments.games] * arguments.warm + [arguments.episodes]:
            shutil.rmtree(folder / "run", ignore_errors=True)
            figures = run(
                episodes,
                arguments.games,
                folder,
                options=options,
                interval=arguments.interval,
                backend=arguments.backend,
            )
        lines = report(figures)
        print("\n".join(lines))
        return int(any(line.startswith("WRONG") for line in lines))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
