"""Does VR-CLI tell a true prediction from a wrong one? A real model, real games.

    python tests/benchmarks/textworld_vrcli.py --model smollm2 [--backend local] [--turns 200]
    python tests/benchmarks/textworld_vrcli.py --model NAME --backend openai --base-url http://127.0.0.1:8000/v1

Plays generated games, half by their plan and half by admissible commands drawn at random. For each turn the model
scores the true outcome after four predictions: its own first sentences (true), those of another turn (shuffled),
none (null), and it makes the base pass once more (repeat). Prints means with 95% intervals (bootstrap).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import statistics
import time
from collections.abc import Sequence
from typing import Any

CHARACTERS = 160


def summary(observation: str) -> str:
    """The first sentences of an observation, as a prediction that came true would tell them."""
    text = " ".join(re.sub(r"-= .* =-", "", observation).split())
    kept = ""
    for sentence in re.split(r"(?<=[.!?])\s+", text):
        if kept and len(kept) + len(sentence) > CHARACTERS:
            break
        kept = f"{kept} {sentence}".strip()
    return kept[: 2 * CHARACTERS]


async def collect(turns: int, seed: int, earlier: int) -> list[Any]:
    """Situations with a command and what came of it, each from a different state of a game."""
    from atropos_textworld.agent.scoring import Outcome, transcript
    from atropos_textworld.config import TextWorldConfig
    from atropos_textworld.environment import TextWorldEnvironment
    from atropos_textworld.games.spec import GameSpec

    environment = TextWorldEnvironment(TextWorldConfig(difficulty="medium", game_seed=seed))
    await environment.open(workers=2)
    rng, found, tasks, index = random.Random(seed), [], environment.tasks("train"), 0
    try:
        while len(found) < turns:
            record, session = await environment._play(GameSpec.from_json(tasks[index].info))
            first, told = session.last.text, []
            for step in range(10):
                options = session.last.commands
                command = record.plan[step] if index % 2 == 0 and step < len(record.plan) else rng.choice(options)
                before = transcript(first, told, earlier)
                seen = await session.step(command)
                found.append(Outcome(before, command, seen.text))
                told.append((command, seen.text))
                if seen.done:
                    break
            await session.close()
            index += 1
    finally:
        await environment.close()
    return found[:turns]


def backend_of(arguments: argparse.Namespace) -> Any:
    """The backend to score with."""
    from atropos_cli.plugins.discovery import get_registry

    cls = get_registry().find("backend", arguments.backend).load()
    options = {"base_url": arguments.base_url} if arguments.base_url else {}
    return cls(cls.Config(**options), model=arguments.model)


class Model:
    """The scorer's side of a backend, with at most `size` requests at a time."""

    def __init__(self, backend: Any, size: int) -> None:
        self.backend = backend
        self.slots = asyncio.Semaphore(size)

    async def tokenize(self, text: str) -> Sequence[int]:
        async with self.slots:
            return await self.backend.tokenize(text)  # type: ignore[no-any-return]

    async def score_logprobs(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        async with self.slots:
            return await self.backend.score(prefix_ids, continuation_ids)  # type: ignore[no-any-return]


def interval(values: Sequence[float], seed: int = 0) -> str:
    """Mean with a bootstrap interval."""
    rng = random.Random(seed)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(2000))
    return f"{statistics.fmean(values):7.2f}  95% [{means[49]:.2f}, {means[1949]:.2f}]"


def report(rows: Sequence[dict[str, Any]]) -> None:
    """Print what the scores say."""
    for name in ("true", "shuffled", "null"):
        improvements = [row[name].improvement_pct for row in rows]
        zero = sum(row[name].discrete == 0 for row in rows) / len(rows)
        full = sum(row[name].discrete == 1 for row in rows) / len(rows)
        print(
            f"  {name:9s} improvement % {interval(improvements)}   median {statistics.median(improvements):7.2f}"
            f"   reward 0: {zero:.0%}, 1: {full:.0%}"
        )
    differences = [row["true"].improvement_pct - row["shuffled"].improvement_pct for row in rows]
    print(f"  true - shuffled           {interval(differences)}")
    wins = [float(difference > 0) for difference in differences]
    print(f"  share of turns that the true one wins   {interval([100 * win for win in wins])} %")
    print(f"  null: largest |improvement| {max(abs(row['null'].improvement_pct) for row in rows):g} %")
    noise = [abs(row["noise"]) for row in rows]
    over = sum(value >= 0.05 for value in noise) / len(noise)
    print(f"  base pass repeated: |improvement| median {statistics.median(noise):.4f}, largest {max(noise):.4f} %;")
    print(f"    {over:.0%} of the repeats differ by 0.05 % or more, the lowest threshold")


async def main() -> None:
    """Play, score, report."""
    from atropos_textworld.agent.options import AgentOptions
    from atropos_textworld.agent.scoring import OutcomeScorer, Spent

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--backend", default="local")
    parser.add_argument("--base-url")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128, help="tokens of an outcome that are scored, at most")
    parser.add_argument("--earlier", type=int, default=3, help="earlier turns that the scorer sees")
    parser.add_argument("--seconds", type=float, default=3600.0, help="take no new turn after so many")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    outcomes = await collect(arguments.turns, arguments.seed, arguments.earlier)
    scorer = OutcomeScorer(AgentOptions(group_by="turn", vrcli="discrete", vrcli_tokens=arguments.tokens))
    backend = backend_of(arguments)
    await backend.open(workers=arguments.at_once)
    model, spent, began = Model(backend, arguments.at_once), Spent(), time.perf_counter()
    try:

        async def one(place: int) -> dict[str, Any]:
            rng = random.Random(f"{arguments.seed}/{place}")
            other = rng.choice([i for i in range(len(outcomes)) if outcomes[i].after != outcomes[place].after])
            texts = {"true": summary(outcomes[place].after), "shuffled": summary(outcomes[other].after), "null": ""}
            judged = await scorer.judge(model, outcomes[place], [*texts.values()], spent, repeat=True)
            return {name: judged.scores[text] for name, text in texts.items()} | {"noise": judged.noise}

        rows: list[dict[str, Any]] = []
        places = iter(range(len(outcomes)))

        async def work() -> None:
            for place in places:
                if time.perf_counter() - began > arguments.seconds:
                    return
                rows.append(await one(place))

        await asyncio.gather(*(work() for _ in range(arguments.at_once)))
    finally:
        await backend.close()
    print(
        f"{arguments.model} by {arguments.backend}: {len(rows)} turns, {spent.requests} passes, {spent.tokens} tokens"
    )
    print(f"  {time.perf_counter() - began:.0f} s, {arguments.at_once} at once")
    report(rows)


if __name__ == "__main__":
    asyncio.run(main())
