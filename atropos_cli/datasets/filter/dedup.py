"""Duplicates among completions: exact ones by their text, near ones by MinHash over shingles of words.

The first of its kind is kept, in the order of the input. Exact ones are compared without white space around
them, near ones by words and symbols alone (`domain.words`): case, punctuation and the width of signs do not count.
Scope "task": only rollouts of the same task are compared; "all": all rollouts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Literal

from atropos_cli.datasets.choices import Choices, Keyed, Row
from atropos_cli.domain.base import JsonDict
from atropos_cli.errors import PluginError
from atropos_cli.io.records import Record, StoredRollout, text_of
from atropos_cli.text.words import normal_text, units

Scope = Literal["task", "all"]
SHINGLE = 5
"""Words in a shingle; in scripts without blanks, signs."""
RECALL = 0.995
"""The share of pairs at the threshold itself that are looked at closely."""


def completion_key(rollout: StoredRollout) -> str:
    """The completion as one text that two rollouts share only when they did the same: text, tool calls, results."""
    if not rollout.messages:
        return str(rollout.tokens)
    if len(rollout.messages) - rollout.prompt_length == 1 and "tool_calls" not in rollout.messages[-1]:
        return text_of(rollout.messages[-1]).strip()
    parts = []
    for message in rollout.completion:
        parts.append(f"{message['role']}\x00{text_of(message).strip()}")
        for call in message.get("tool_calls") or ():
            parts.append(f"\x01{call['function']['name']}\x00{call['function'].get('arguments', '')}")
    return "\x02".join(parts)


class ExactDuplicates:
    """Remembers 64 bits of every completion seen."""

    def __init__(self, scope: Scope = "task") -> None:
        self._scope = scope
        self._seen: set[int] = set()

    def is_new(self, record: Record, rollout: StoredRollout) -> bool:
        """True for the first rollout with this completion (in its scope), and for one without any."""
        if not rollout.messages and not rollout.sequences:
            return True
        key = hash((record.task_key if self._scope == "task" else "", completion_key(rollout)))
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


class NearDuplicates:
    """Remembers the shingles of every completion kept (3 kB and 4 bytes a word). Raises PluginError without datasketch.

    A pair is compared when its MinHash sketches agree in all rows of one band; what decides is then the similarity of
    the shingles themselves.
    """

    def __init__(
        self, threshold: float = 0.8, scope: Scope = "task", *, permutations: int = 128, seed: int = 1
    ) -> None:
        try:
            import datasketch
            import numpy
        except ModuleNotFoundError as error:
            raise PluginError(
                "near-duplicate removal needs datasketch", hint="pip install 'atropos-cli[dedup]'"
            ) from error
        # A copy of an empty one: drawing the permutations costs most of a sketch.
        self._make: Any = datasketch.MinHash(num_perm=permutations, seed=seed).copy
        self._numpy: Any = numpy
        self._rows = band_rows(threshold, permutations)
        self._threshold = threshold
        self._scope = scope
        self._kept: list[Any] = []
        self._bands: dict[int, list[int]] = {}

    def is_new(self, record: Record, rollout: StoredRollout) -> bool:
        """True unless a kept rollout has a Jaccard similarity of at least the threshold."""
        if not rollout.messages and not rollout.sequences:
            return True
        return self.adds(record.task_key if self._scope == "task" else "", *self.sketch(completion_key(rollout)))

    def sketch(self, text: str) -> tuple[Any, Any]:
        """(MinHash values, hashes of the shingles) of a completion: the same in every process."""
        sketch = self._make()
        found = shingles(text)
        sketch.update_batch(found)
        own = self._numpy.unique(self._numpy.array([zlib.crc32(one) for one in found], dtype="uint32"))
        return sketch.hashvalues.astype("uint32"), own

    def adds(self, scope: str, hashes: Any, own: Any) -> bool:
        """`is_new` for a sketch."""
        rows = self._rows
        bands = [hash((scope, i, hashes[i : i + rows].tobytes())) for i in range(0, len(hashes) - rows + 1, rows)]
        compared: set[int] = set()
        for band in bands:
            for number in self._bands.get(band, ()):
                if number not in compared:
                    compared.add(number)
                    if self._similarity(own, self._kept[number]) >= self._threshold:
                        return False
        for band in bands:
            self._bands.setdefault(band, []).append(len(self._kept))
        self._kept.append(own)
        return True

    def _similarity(self, one: Any, other: Any) -> float:
        shared = len(self._numpy.intersect1d(one, other, assume_unique=True))
        return shared / (len(one) + len(other) - shared)


EXACT, NEAR = 1, 2
"""Verdicts."""
_DIGEST = 16
_SKETCH = 128


class DuplicatesElsewhere:
    """Duplicates among rows of several parts: asks `choices` for each rollout. Near ones only within a task."""

    def __init__(self, choices: Choices, scope: Scope, near: NearDuplicates | None) -> None:
        self._choices = choices
        self._scope = scope
        self._near = near

    def verdict(self, record: Record, rollout: StoredRollout) -> int:
        """0, EXACT or NEAR."""
        if not rollout.messages and not rollout.sequences:
            return 0
        if not self._choices.collects:
            return self._choices.ask(b"")
        text = completion_key(rollout)
        scope = record.task_key if self._scope == "task" else ""
        if self._near is None:
            return self._choices.ask(_digest(f"{scope}\x00{text}"))
        hashes, own = self._near.sketch(text)
        return self._choices.ask(_digest(scope), _digest(text) + hashes.tobytes() + own.tobytes())


def keyed_duplicates(dedup: str, scope: Scope, threshold: float) -> Keyed | None:
    """How duplicates are found over all parts; None when they are not looked for, or cannot be."""
    if dedup == "none" or (dedup == "near" and scope == "all"):
        return None
    return Keyed(f"--dedup {dedup}", f"{__name__}:find_duplicates", {"near": dedup == "near", "threshold": threshold})


def find_duplicates(rows: Iterable[Row], options: JsonDict) -> list[tuple[int, int]]:
    """Decides over the completions of `DuplicatesElsewhere` as a single process does: the first of its kind stays."""
    found: list[tuple[int, int]] = []
    seen: set[bytes] = set()
    if not options["near"]:
        for place, key, _ in rows:
            if key in seen:
                found.append((place, EXACT))
            seen.add(key)
        return found
    import numpy

    near = NearDuplicates(float(str(options["threshold"])))
    for place, key, payload in rows:
        exact = key + payload[:_DIGEST]
        if exact in seen:
            found.append((place, EXACT))
            continue
        seen.add(exact)
        numbers = numpy.frombuffer(payload, dtype="uint32", offset=_DIGEST)
        if not near.adds(key.hex(), numbers[:_SKETCH], numbers[_SKETCH:]):
            found.append((place, NEAR))
    return found


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=_DIGEST).digest()


def band_rows(threshold: float, permutations: int) -> int:
    """The most rows a band may have so that pairs at the threshold meet in some band with a chance of RECALL."""
    return max(
        rows
        for rows in range(1, permutations + 1)
        if rows == 1 or 1 - (1 - threshold**rows) ** (permutations // rows) >= RECALL
    )


def shingles(text: str, size: int = SHINGLE) -> list[bytes]:
    """All runs of `size` words or symbols; a shorter text is one shingle, and so is one without any word."""
    found = units(normal_text(text))
    if len(found) <= size:
        return [(" ".join(found) or text.strip()).encode("utf-8", "replace")]
    return [" ".join(found[i : i + size]).encode("utf-8", "replace") for i in range(len(found) - size + 1)]
