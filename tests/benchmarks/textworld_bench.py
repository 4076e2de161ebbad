"""What text games cost: CPU per step and per game, the wait for a new game, memory.

    python tests/benchmarks/textworld_bench.py [--episodes 32] [--group 8] [--rounds 3] [--think 2.0]

Plays generated quests and challenges by their own plans, `--episodes` at a time in groups of the
same game, as `atropos gen` does, in real worker processes and with a game cache of its own. CPU
counts all processes: this one, the players, the builder and its compilers. Waits are wall time and
only mean something on an idle machine, so the load is printed with them. `--think` is the pause
before each command in the wait measurement, where a model would be writing; in the CPU measurement
there is none.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and, for a worker, of its children that have ended."""
    if pid == os.getpid():
        return time.process_time()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def memory_of(pid: int) -> float:
    """MB that would be free without this process: private pages and its share of common ones."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Bench:
    """One open environment and its processes."""

    def __init__(self, arguments: argparse.Namespace, **options: Any) -> None:
        from atropos_textworld.config import TextWorldConfig
        from atropos_textworld.environment import TextWorldEnvironment

        self.arguments = arguments
        self.environment = TextWorldEnvironment(TextWorldConfig(**options))
        self.steps = 0
        self.waits: list[float] = []

    async def __aenter__(self) -> Bench:
        await self.environment.open(workers=self.arguments.episodes)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.environment.close()

    @property
    def runtime(self) -> Any:
        return self.environment._runtime

    def pids(self) -> dict[str, list[int]]:
        builders = self.runtime.pool.processes.pids()
        return {"this process": [os.getpid()], "players": self.runtime.fleet.pids(), "builders": builders}

    def cpu(self) -> float:
        return sum(cpu_of(pid) for pids in self.pids().values() for pid in pids)

    async def play(self, task: Any, think: float = 0.0) -> None:
        from atropos_cli.sdk import assistant

        episode = self.environment.episode(task)
        began = time.perf_counter()
        await episode.reset()
        self.waits.append(time.perf_counter() - began)
        for command in episode.game.record.plan:
            if think:
                await asyncio.sleep(think)
            await episode.step(assistant(f"> {command}"))
            self.steps += 1
        assert episode.result()["won"]
        await episode.close()

    async def play_all(self, groups: int, think: float = 0.0) -> None:
        """Groups of the same game, `episodes` at a time."""
        tasks, size = self.environment.tasks("train"), self.arguments.group
        indexes = iter(range(groups))

        async def worker() -> None:
            for index in indexes:
                await asyncio.gather(*(self.play(tasks[index], think) for _ in range(size)))

        await asyncio.gather(*(worker() for _ in range(self.arguments.episodes // size)))


async def building(arguments: argparse.Namespace) -> None:
    """CPU to make and compile games that were never made before."""
    async with Bench(arguments) as bench:
        from atropos_textworld.games.spec import GameSpec

        pool = bench.runtime.pool
        for kind in ("quest-fetch", "tw-simple"):
            await pool.get(GameSpec(kind, "easy", 1))
            (builder,) = bench.pids()["builders"][:1]
            before, makes = cpu_of(builder), []
            specs = [GameSpec(kind, difficulty, 2) for difficulty in ("easy", "medium", "hard", "expert")]
            for spec in specs:
                makes.append((await pool.get(spec)).make_seconds)
            total = (cpu_of(builder) - before) / len(specs)
            print(f"  {kind:12s} make {statistics.mean(makes):6.3f}   make and compile {total:6.3f} CPU s a game")


async def playing(arguments: argparse.Namespace) -> None:
    """CPU of playing games that are in the cache."""
    groups = arguments.episodes // arguments.group * 3
    async with Bench(arguments, difficulty="medium") as bench:
        await bench.play_all(groups)
        before, steps = bench.cpu(), bench.steps
        for _ in range(arguments.rounds):
            await bench.play_all(groups)
        cpu, steps = bench.cpu() - before, bench.steps - steps
        episodes = arguments.rounds * groups * arguments.group
        print(f"  {episodes} episodes, {steps} steps, {arguments.episodes} at once")
        print(f"  {cpu / steps * 1e3:.1f} CPU ms a step, {cpu / episodes * 1e3:.0f} CPU ms an episode, all included")
        shares = {name: sum(map(cpu_of, pids)) for name, pids in bench.pids().items()}
        print("  since start:", ", ".join(f"{name} {share:.1f} CPU s" for name, share in shares.items()))


async def waiting(arguments: argparse.Namespace, label: str) -> None:
    """How long reset() takes when the pool was given time to build ahead."""
    async with Bench(arguments, difficulty="medium", game_seed=1) as bench:
        await bench.play_all(6 * arguments.episodes // arguments.group, arguments.think)
        waits = sorted(bench.waits[arguments.episodes :])
        median, late = statistics.median(waits), waits[int(0.95 * len(waits))]
        print(
            f"  {label}: median {median * 1e3:.0f} ms, 95th percentile {late * 1e3:.0f} ms"
            f" over {len(waits)} games; built {bench.runtime.pool.built}; load {os.getloadavg()[0]:.1f}"
        )


async def memory(arguments: argparse.Namespace) -> None:
    """Memory with all games open."""
    async with Bench(arguments, difficulty="medium") as bench:
        tasks = bench.environment.tasks("train")
        episodes = [bench.environment.episode(tasks[index]) for index in range(arguments.episodes)]
        await asyncio.gather(*(episode.reset() for episode in episodes))
        for name, pids in bench.pids().items():
            sizes = ", ".join(f"{memory_of(pid):.0f}" for pid in pids)
            print(f"  {name}: {sizes} MB")
        for episode in episodes:
            await episode.close()
    print(f"  peak of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


async def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--think", type=float, default=2.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}\nbuilding a new game")
        await building(arguments)
        print("playing")
        await playing(arguments)
        print(f"wait for a new game, {arguments.think:g} s of thought a turn")
        await waiting(arguments, "games never built before")
        await waiting(arguments, "all games in the cache")
        print(f"memory with {arguments.episodes} games open")
        await memory(arguments)


if __name__ == "__main__":
    asyncio.run(main())
