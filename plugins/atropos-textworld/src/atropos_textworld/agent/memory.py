"""What the agent wrote down in earlier turns, found again by meaning.

    store = open_store(MemoryOptions())
    store.add("The brass key is in the cellar.", episode="e1", turn=3)
    store.search("The cellar door is locked.")     -> [Hit(text, similarity, episode, turn), ...]

One store belongs to one episode. Similarity is the cosine of sentence embeddings, from an exact FAISS index.
With a decay or importances, hits are ordered by similarity * importance * 0.5 ** (age / half-life), where the age
is the number of memories written since; what is below the threshold of similarity is never a hit.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import ConfigError
from atropos_textworld.agent.embedding import EXTRA, CachedEmbedder, EmbeddingName, load_embedder
from atropos_textworld.agent.memory_file import Note, add_notes, read_notes

if TYPE_CHECKING:
    from types import ModuleType

_WORD = re.compile(r"\w{4,}")
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        about after again also another back because been before being both cannot could does doing done down during each
        else even ever every from further going have having here however into itself just keep like made make many
        maybe more most much must need needs next nothing once only onto other over perhaps same shall should since
        some something still such than that their them then there therefore these they thing things this those through
        under until upon very want wants well were what when where whether which while will with within without would
        your yourself
        """,
    )
)


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """half_life: memories after which one counts half, 0 for no decay. file: kept over episodes, with at most
    `file_size` memories in it. use_importance: an importance given to `add` weighs in."""

    embeddings: EmbeddingName = "wordllama"
    top_k: int = 3
    threshold: float = 0.35
    half_life: float = 0.0
    use_importance: bool = False
    file: Path | None = None
    file_size: int = 1000


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that was found. similarity is the cosine, -1 to 1, whatever else the order depends on."""

    text: str
    similarity: float
    episode: str
    turn: int


def open_store(options: MemoryOptions | None = None) -> MemoryStore:
    """A store for one episode, with what the file holds. Loads the model on first use.

    Raises ConfigError when a package is missing, DataError for a file that is no memory file.
    """
    options = options or MemoryOptions()
    return MemoryStore(options, load_embedder(options.embeddings), _faiss())


class MemoryStore:
    """Memories of one episode, and of earlier ones when there is a file. `close` writes the file."""

    def __init__(self, options: MemoryOptions, embedder: CachedEmbedder, faiss: Any) -> None:
        self._options = options
        self._embedder = embedder
        self._index = faiss.IndexFlatIP(embedder.dimensions)
        self._notes: list[Note] = []
        self._written: list[int] = []
        self._places: dict[str, int] = {}
        self._clock = 0
        self._repeated = 0
        self._searches = 0
        self._found = 0
        self._hits = 0
        self._similarity = 0.0
        self._closed = False
        for note in read_notes(options.file) if options.file is not None else ():
            self._insert(note)
        self._kept = len(self._notes)
        self._new: dict[str, Note] = {}

    def __len__(self) -> int:
        return len(self._notes)

    def add(self, text: str, *, episode: str, turn: int, importance: float | None = None) -> None:
        """Store a memory. A text that is stored already becomes new again instead of standing there twice.

        Raises ValueError for an importance that is negative or no number.
        """
        if importance is not None and not (math.isfinite(importance) and importance >= 0):
            raise ValueError(f"an importance is a number from 0 on, not {importance}")
        note = Note(text, episode, turn, importance)
        self._new.pop(text, None)
        self._new[text] = note
        place = self._places.get(text)
        if place is None:
            self._insert(note)
            return
        self._repeated += 1
        self._clock += 1
        self._notes[place] = note
        self._written[place] = self._clock

    def _insert(self, note: Note) -> None:
        self._index.add(self._embedder.embed(note.text).reshape(1, -1))
        self._clock += 1
        self._places[note.text] = len(self._notes)
        self._notes.append(note)
        self._written.append(self._clock)

    def search(self, text: str, k: int | None = None) -> list[Hit]:
        """At most k memories (`top_k` by default) that are similar enough, best first."""
        self._searches += 1
        k = self._options.top_k if k is None else k
        hits = self._nearest(text, k) if k > 0 and self._notes else []
        self._found += bool(hits)
        self._hits += len(hits)
        self._similarity += sum(hit.similarity for hit in hits)
        return hits

    def _nearest(self, text: str, k: int) -> list[Hit]:
        weighed = self._options.half_life > 0 or self._options.use_importance
        # An order by weight may put any memory first, so then all are looked at.
        wanted = len(self._notes) if weighed else min(k, len(self._notes))
        similarities, places = self._index.search(self._embedder.embed(text).reshape(1, -1), wanted)
        found = [
            (float(similarity), int(place))
            for similarity, place in zip(similarities[0], places[0], strict=True)
            if similarity >= self._options.threshold
        ]
        found.sort(key=lambda pair: (-pair[0] * self._weight(pair[1]), -self._written[pair[1]]))
        return [self._hit(similarity, place) for similarity, place in found[:k]]

    def _weight(self, place: int) -> float:
        weight = 1.0
        if self._options.half_life > 0:
            weight *= 0.5 ** ((self._clock - self._written[place]) / self._options.half_life)
        importance = self._notes[place].importance
        if self._options.use_importance and importance is not None:
            weight *= importance
        return weight

    def _hit(self, similarity: float, place: int) -> Hit:
        note = self._notes[place]
        # Rounding can put the cosine of a text with itself a little above 1.
        return Hit(note.text, max(-1.0, min(1.0, similarity)), note.episode, note.turn)

    def stats(self) -> dict[str, float]:
        """Counts of this store; `memory_hits` is per search and `memory_similarity` the mean over all hits.

        Means of nothing are left out.
        """
        stats = {
            "memory_notes": float(len(self._notes) - self._kept),
            "memory_repeated": float(self._repeated),
            "memory_searches": float(self._searches),
        }
        if self._searches:
            stats["memory_hits"] = self._hits / self._searches
            stats["memory_hit_rate"] = self._found / self._searches
        if self._hits:
            stats["memory_similarity"] = self._similarity / self._hits
        return stats

    def close(self) -> None:
        """Write new memories to the file, if there is one; a second call does nothing. Raises DataError."""
        if self._closed:
            return
        self._closed = True
        if self._options.file is not None and self._new:
            add_notes(self._options.file, self._new.values(), self._options.file_size)
        self._index.reset()


def share_used(hits: Sequence[Hit], reply: str, observation: str) -> float:
    """The share of hits of which the reply takes up a word that the observation lacks.

    Words are at least four letters long and say something: "with" and "then" do not count.
    """
    if not hits:
        return 0.0
    told = _words(observation)
    said = _words(reply) - told
    return sum(bool((_words(hit.text) - told) & said) for hit in hits) / len(hits)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower())) - _FUNCTION_WORDS


def _faiss() -> ModuleType:
    try:
        faiss = importlib.import_module("faiss")
    except ImportError as error:
        raise ConfigError(f"the memory's index needs faiss ({error})", hint=EXTRA) from error
    # One query at a time has nothing to share out among threads, and idle ones would spin.
    faiss.omp_set_num_threads(1)
    return faiss
