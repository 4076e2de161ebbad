"""CPU milliseconds of one score in the isolated worker, all processes counted. Run as a script.

    python plugins/atropos-reasoning-gym/tests/benchmarks/scores.py [FAMILY ...]

The marginal cost: the difference of two run lengths, so that the worker's start does not count.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import sys

from atropos_reasoning_gym import scoring
from atropos_reasoning_gym.environment import ReasoningGymEnvironment

FEW, MANY = 10, 310


def cpu() -> float:
    """CPU seconds of this process and of all its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def spent(family: str, count: int) -> float:
    """CPU seconds for a new worker and `count` scores of gold answers."""
    began = cpu()
    environment = ReasoningGymEnvironment(ReasoningGymEnvironment.Config(families=(family,)))
    tasks = list(itertools.islice(environment.tasks("train"), 5))

    async def score() -> None:
        for task in itertools.islice(itertools.cycle(tasks), count):
            await environment.validate(task)

    asyncio.run(score())
    scoring.worker_for().close()
    return cpu() - began


def main() -> None:
    for family in sys.argv[1:] or ("chain_sum", "countdown"):
        few, many = spent(family, FEW), spent(family, MANY)
        each = (many - few) / (MANY - FEW) * 1e3
        print(f"{family}: {each:.1f} CPU ms a score; {few - FEW * each / 1e3:.2f} CPU s to start")


if __name__ == "__main__":
    main()
