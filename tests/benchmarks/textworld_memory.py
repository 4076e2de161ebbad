"""What the agent's memory costs: CPU to add and search, memory over many episodes, and how well it finds things.

    python tests/benchmarks/textworld_memory.py [--episodes 5000] [--turns 25]

Each turn of an episode adds one note and searches with one observation of about 80 words, all of them new, so that no
vector is known from before. Finding: 40 notes an episode, each asked for once, by the names of its thing and place and
then by synonyms; a note counts as found when it is among the first three.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from pathlib import Path
from typing import Any

THINGS = "brass key, oak chest, copper lamp, stone statue, silver bell, glass flask, iron gate, rope, marble rack, map"
PLACES = "cellar, attic, kitchen, garden, library, workshop, boathouse, chapel, courtyard, pantry, hall, tower"
SYNONYMS = (
    "brass key=key made of brass, oak chest=wooden trunk, copper lamp=copper lantern, stone statue=sculpture, "
    "silver bell=silvery chime, glass flask=bottle, iron gate=metal barrier, rope=cord, "
    "marble rack=marble shelf, map=chart, cellar=basement, attic=loft, kitchen=place to cook, "
    "garden=yard with flowers, library=room of books, workshop=studio, boathouse=shed for boats, "
    "chapel=church, courtyard=patio, pantry=larder, hall=corridor, tower=turret"
)
SAID = (
    ("The {t} is in the {p}.", "Where did I see the {t}? I am looking for it."),
    ("The {p} has a locked door; it needs the {t}.", "-= {P} =- A door here will not open without something."),
    ("In the {p} I opened the {t}, nothing inside.", "You are in the {p}. There is an open {t}."),
    ("Bring the {t} to the {p} to win.", "You carry the {t}. What was it for?"),
)


def words(rng: random.Random, count: int) -> str:
    """A text that was never seen before."""
    pool = (THINGS + ", " + PLACES).replace(",", "").split()
    return " ".join(rng.choice(pool) for _ in range(count)) + f" {rng.random()}"


def resident() -> float:
    """MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def cost(name: Any, episodes: int, turns: int) -> None:
    """CPU for each turn, and memory while the episodes go by."""
    from atropos_textworld.agent.memory import MemoryOptions, open_store

    rng, sizes, start = random.Random(1), [], time.process_time()
    open_store(MemoryOptions(embeddings=name)).close()
    loaded, begin = time.process_time() - start, time.process_time()
    texts = 0.0
    for episode in range(episodes):
        store = open_store(MemoryOptions(embeddings=name))
        for turn in range(turns):
            before = time.process_time()
            note, observation = words(rng, 15), words(rng, 80)
            texts += time.process_time() - before
            store.add(note, episode=str(episode), turn=turn)
            store.search(observation)
        store.close()
        if episode % max(1, episodes // 10) == 0:
            sizes.append(resident())
    each = 1000 * (time.process_time() - begin - texts) / (episodes * turns)
    threads = len(list(Path("/proc/self/task").iterdir()))
    print(f"{name}: load {loaded:.2f} CPU s; add and search {each:.3f} CPU ms a turn; {threads} threads")
    print(f"  resident, every {max(1, episodes // 10)} episodes: {', '.join(f'{size:.0f}' for size in sizes)} MB")


def finding(name: Any, episodes: int = 50, *, synonyms: bool) -> None:
    """How often a note is among the first three that its question finds."""
    from atropos_textworld.agent.memory import MemoryOptions, open_store

    rng, found, asked = random.Random(2), 0, 0
    other = dict(pair.split("=") for pair in SYNONYMS.split(", ")) if synonyms else {}
    for _ in range(episodes):
        store = open_store(MemoryOptions(embeddings=name, threshold=-1.0))
        things, places = THINGS.split(", "), PLACES.split(", ")
        pairs = [(t, p, form) for t in things for p in places for form in SAID]
        # Every question must have one right answer.
        chosen: list[tuple[str, str]] = []
        for thing, place, (note, question) in rng.sample(pairs, len(pairs)):
            asked_thing, asked_place = other.get(thing, thing), other.get(place, place)
            filled = question.format(t=asked_thing, p=asked_place, P=asked_place.title())
            if len(chosen) < 40 and filled not in [taken for _, taken in chosen]:
                chosen.append((note.format(t=thing, p=place), filled))
        for turn, (note, _) in enumerate(chosen):
            store.add(note, episode="e", turn=turn)
        for note, question in chosen:
            asked += 1
            found += note in [hit.text for hit in store.search(question)]
        store.close()
    how = "synonyms" if synonyms else "the same names"
    print(f"  found among the first three of 40, asked for by {how}: {100 * found / asked:.0f} %")


def main() -> None:
    """Both embeddings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=5000)
    parser.add_argument("--turns", type=int, default=25)
    arguments = parser.parse_args()
    for name in ("wordllama", "hash"):
        cost(name, arguments.episodes, arguments.turns)
        finding(name, synonyms=False)
        finding(name, synonyms=True)


if __name__ == "__main__":
    main()
