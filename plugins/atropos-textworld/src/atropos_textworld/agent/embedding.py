"""Sentence embeddings without a network: one model in the process, shared by all memory stores.

`wordllama` has its weights in the wheel (256 dimensions, averaged token vectors). `hash` needs no model: words,
pairs of words and runs of four characters, hashed into 512 dimensions; it knows no synonyms.
"""

from __future__ import annotations

import importlib
import logging
import re
import threading
import zlib
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from atropos_cli.sdk import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

EmbeddingName = Literal["wordllama", "hash"]

EXTRA = "pip install 'atropos-textworld[memory]'"
LONGEST_TEXT = 4000
"""Characters of a text that are embedded."""
REMEMBERED_TEXTS = 4096
"""Vectors kept by text: 4 MB at 256 dimensions."""

_HASH_DIMENSIONS = 512
_WORD = re.compile(r"\w+")


class Embedder(Protocol):
    """Turns a text into one vector."""

    name: str
    dimensions: int

    def embed(self, text: str) -> Vector:
        """A vector of length 1, or zeros for a text without anything to embed."""
        ...


class HashEmbedder:
    """Hashed n-grams; the same in any process."""

    name = "hash"
    dimensions = _HASH_DIMENSIONS

    def embed(self, text: str) -> Vector:
        import numpy as np

        words = _WORD.findall(text.lower())
        grams = [*words, *map(" ".join, pairwise(words))]
        for word in words:
            padded = f"#{word}#"
            grams += [padded[i : i + 4] for i in range(max(1, len(padded) - 3))]
        vector = np.zeros(_HASH_DIMENSIONS, dtype=np.float32)
        for gram in grams:
            code = zlib.crc32(gram.encode("utf-8"))
            # The sign bit makes collisions cancel on average instead of adding up.
            vector[code % _HASH_DIMENSIONS] += 1.0 if code & 0x8000_0000 else -1.0
        return _unit(vector)


class WordLlamaEmbedder:
    """The model that the wordllama wheel brings along. Raises ConfigError when it is not installed."""

    name = "wordllama"

    def __init__(self) -> None:
        package = _import_wordllama()
        folder = Path(package.__file__).parent
        try:
            # The wheel's own folder is named as the cache: by default the tokenizer is looked for elsewhere.
            model = package.WordLlama.load(cache_dir=folder, disable_download=True)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the wordllama model cannot be loaded: {error}", hint="pip install --force-reinstall wordllama"
            ) from error
        self._vectors: Vector = model.embedding
        self._tokenizer = model.tokenizer
        self._tokenizer.no_padding()
        self.dimensions = int(self._vectors.shape[1])

    def embed(self, text: str) -> Vector:
        import numpy as np

        # One text at a time: a batch would start threads of the tokenizer's own.
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        if not ids:
            return np.zeros(self.dimensions, dtype=np.float32)
        return _unit(self._vectors[ids].mean(axis=0))


class CachedEmbedder:
    """Keeps the newest vectors by text: stored notes are searched for and reloaded again and again."""

    def __init__(self, inner: Embedder, size: int = REMEMBERED_TEXTS) -> None:
        self.name = inner.name
        self.dimensions = inner.dimensions
        self._inner = inner
        self._size = size
        self._known: OrderedDict[str, Vector] = OrderedDict()
        self._lock = threading.Lock()

    def embed(self, text: str) -> Vector:
        text = text[:LONGEST_TEXT].encode("utf-8", "replace").decode("utf-8")
        with self._lock:
            vector = self._known.pop(text, None)
            if vector is None:
                vector = self._inner.embed(text)
                vector.flags.writeable = False
            self._known[text] = vector
            if len(self._known) > self._size:
                self._known.popitem(last=False)
            return vector


_LOADED: dict[str, CachedEmbedder] = {}
_LOADING = threading.Lock()


def load_embedder(name: EmbeddingName) -> CachedEmbedder:
    """The process's embedder of this name, loaded on first use. Raises ConfigError."""
    with _LOADING:
        if name not in _LOADED:
            _LOADED[name] = CachedEmbedder(HashEmbedder() if name == "hash" else WordLlamaEmbedder())
        return _LOADED[name]


def _import_wordllama() -> Any:
    root = logging.getLogger()
    # The package sets up logging for the whole process when it is imported, unless there is a handler.
    guard = logging.NullHandler()
    root.addHandler(guard)
    try:
        return importlib.import_module("wordllama")
    except ImportError as error:
        raise ConfigError(
            f"the memory's embeddings need wordllama ({error})", hint=f"{EXTRA}, or --memory-embeddings hash"
        ) from error
    finally:
        root.removeHandler(guard)


def _unit(vector: Vector) -> Vector:
    import numpy as np

    length = float(np.linalg.norm(vector))
    result: Vector = (vector / length if length > 0 else vector).astype(np.float32)
    return result
