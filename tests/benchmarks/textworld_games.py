"""Plays every kind of game at every difficulty equally often, and makes the tables of the reference page.

    export XDG_CACHE_HOME=games                    a game cache of its own
    GAMES=tests/benchmarks/textworld_games.py
    atropos gen $GAMES:Grid --backend textworld-oracle --limit 2024 --group-size 1 --cache-mb 4096 -o oracle
    atropos gen $GAMES:Grid --backend textworld-admissible-random --limit 2024 --group-size 1 --cache-mb 4096 -o random
    python $GAMES oracle random [--compile 46]

Of 2,024 games each of the 23 kinds has 22 at each of the 4 difficulties. All are compiled and played turn by turn in
real game processes, as any run does; `gen --resume` goes on after an interruption. Games are counted as distinct by
what they are compiled from. CPU is process time: generating and proving in the builder, compiling in the compilers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from atropos_textworld.environment import TextWorldEnvironment
from atropos_textworld.games import registry
from atropos_textworld.games.spec import DIFFICULTIES, GameSpec

from atropos_cli.sdk import Task, TaskStream

SEED = 4


def spec_of(index: int) -> GameSpec:
    """Game number `index`: all kinds in turn, at all difficulties in turn."""
    kinds = list(registry.kinds())
    rest, kind = divmod(index, len(kinds))
    difficulty = DIFFICULTIES[rest % len(DIFFICULTIES)]
    return GameSpec(kinds[kind], difficulty, random.Random(f"grid:{SEED}:{index}").randrange(10**8) * 10)


class Grid(TextWorldEnvironment):
    """The environment textworld with games in an even order instead of a drawn one."""

    name = "textworld"

    def tasks(self, split: str) -> TaskStream:
        """An endless stream."""

        def make(index: int) -> Task:
            spec = spec_of(index)
            return Task(id=spec.id, info=dict(spec.as_json()))

        return TaskStream(make)


def infos(run: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(info, rollout) of each rollout of a run; failed ones have an empty info."""
    with (run / "groups.jsonl").open() as lines:
        for line in lines:
            for rollout in json.loads(line)["rollouts"]:
                yield rollout["info"], rollout


def won(run: Path, key: str) -> dict[str, list[bool]]:
    """Whether each game was won, by a value of the info."""
    table: dict[str, list[bool]] = defaultdict(list)
    failed = 0
    for info, rollout in infos(run):
        failed += rollout.get("failure") is not None
        if rollout.get("failure") is None:
            table[info[key]].append(info["won"])
    print(f"{run}: {sum(map(len, table.values()))} games, {failed} failed rollouts")
    return table


def share(values: Iterable[bool]) -> str:
    """A mean as per cent."""
    values = list(values)
    return f"{100 * sum(values) / len(values):.1f} %" if values else "-"


def by_kind(oracle: Path, others: list[Path]) -> None:
    """The table of kinds."""
    plans: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for info, rollout in infos(oracle):
        if rollout.get("failure") is None:
            plans[info["kind"]][info["difficulty"]].append(info["plan_length"])
    tables = [won(run, "kind") for run in (oracle, *others)]
    head = [f"won by {run.name}" for run in (oracle, *others)]
    print("\n| kind | games | " + " | ".join(head) + " | plan, easy | medium | hard | expert |")
    print("|---|---|" + "---|" * (len(head) + 4))
    for kind in registry.kinds():
        lengths = [f"{min(plans[kind][d])}-{max(plans[kind][d])}" for d in DIFFICULTIES if plans[kind][d]]
        print(
            f"| `{kind}` | {len(tables[0][kind])} | " + " | ".join([*(share(t[kind]) for t in tables), *lengths]) + " |"
        )


def by_difficulty(runs: list[Path]) -> None:
    """The table of difficulties, one row a run."""
    print("\n| | " + " | ".join(DIFFICULTIES) + " |\n|---|" + "---|" * len(DIFFICULTIES))
    for run in runs:
        table = won(run, "difficulty")
        print(f"| {run.name} | " + " | ".join(share(table[difficulty]) for difficulty in DIFFICULTIES) + " |")


def made(count: int) -> None:
    """What the cache knows of the first `count` games: how many are distinct, and what generating them took."""
    from atropos_textworld.engine.cache import GameCache, default_root

    cache = GameCache(default_root(), 2**40)
    records = [record for record in map(cache.find, map(spec_of, range(count))) if record is not None]
    keys: dict[str, set[str]] = defaultdict(set)
    for record in records:
        keys[record.spec.kind].add(record.key)
    print(f"\n{len(records)} games in the cache, {sum(map(len, keys.values()))} distinct")
    few = {kind: len(found) for kind, found in keys.items()}
    print("distinct by kind:", dict(sorted(few.items(), key=lambda item: item[1])[:5]))
    seconds = sorted(record.make_seconds for record in records)
    if seconds:
        print(
            f"generate and prove: median {1000 * statistics.median(seconds):.1f} CPU ms, "
            f"95 % below {1000 * seconds[int(0.95 * len(seconds))]:.0f}, most {1000 * seconds[-1]:.0f}"
        )


def compiling(count: int) -> None:
    """CPU of the compilers, over new games of all kinds."""
    from atropos_textworld.engine.build import build
    from atropos_textworld.engine.cache import GameCache

    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        cache = GameCache(Path(folder) / "cache", 2**40)
        for index in range(count):
            # A stride that is prime to the number of cells visits all of them before any comes again.
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            build(spec_of(index * 31), cache, lambda phase: None)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        os.chdir("/")
    seconds.sort()
    print(f"compile: median {statistics.median(seconds):.2f} CPU s over {count} games, most {seconds[-1]:.2f}")


def main() -> None:
    """Print the tables of finished runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--games", type=int, default=2024)
    parser.add_argument("--compile", type=int, default=0, help="compile this many games to measure it")
    arguments = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}")
    by_kind(arguments.runs[0], arguments.runs[1:])
    by_difficulty(arguments.runs)
    made(arguments.games)
    if arguments.compile:
        compiling(arguments.compile)


if __name__ == "__main__":
    main()
