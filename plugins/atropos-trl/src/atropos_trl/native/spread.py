"""How the rows of a step are cut into micro-batches and spread over processes: little padding, equal work.

Rows of like length go together, so that little is padded; the batches are about equally large, and each process gets
equally many of them. The gradient does not depend on any of it: the weight of a row is that of the whole step.
"""

from __future__ import annotations

from collections.abc import Sequence


def spread(lengths: Sequence[int], most: int, processes: int = 1) -> list[list[list[int]]]:
    """By process its micro-batches, each a list of indices.

    Rows x longest row of a batch is at most `most` tokens, if one row is. No process has more batches than needed: as
    few as fit, rounded up to a multiple of the processes where there are rows enough.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    ordered = [lengths[i] for i in order]
    found: list[list[list[int]]] = [[] for _ in range(processes)]
    if not order:
        return found
    wanted = -(-len(_cut(ordered, most)) // processes) * processes
    low, high = 1, most
    while low < high:  # the smallest limit that needs no more batches
        middle = (low + high) // 2
        if len(_cut(ordered, middle)) <= wanted:
            high = middle
        else:
            low = middle + 1
    ends = _cut(ordered, low)
    batches = [order[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    loads = [0] * processes
    room = -(-len(batches) // processes)
    for batch in sorted(batches, key=lambda batch: -area([lengths[i] for i in batch])):
        place = min((p for p in range(processes) if len(found[p]) < room), key=lambda p: (loads[p], p))
        found[place].append(batch)
        loads[place] += area([lengths[i] for i in batch])
    return found


def area(lengths: Sequence[int]) -> int:
    """Tokens of a batch, padding counted."""
    return len(lengths) * max(lengths, default=0)


def _cut(lengths: Sequence[int], most: int) -> list[int]:
    """Where batches of at most `most` tokens end. lengths: in descending order."""
    ends, begin = [], 0
    for place in range(1, len(lengths)):
        if (place - begin + 1) * lengths[begin] > most:
            ends.append(place)
            begin = place
    return [*ends, len(lengths)]


def shares(lengths: Sequence[int], parts: Sequence[Sequence[Sequence[int]]]) -> dict[str, float]:
    """For the metrics: the share of padding, and the busiest process over the mean of all."""
    loads = [sum(area([lengths[i] for i in batch]) for batch in part) for part in parts]
    total = sum(loads)
    found = {"padding": 1 - sum(lengths) / total if total else 0.0}
    if len(loads) > 1:
        found["imbalance"] = max(loads) * len(loads) / total if total else 1.0
    return found
