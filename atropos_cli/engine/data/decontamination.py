"""Find training text that holds pieces of evaluation data, by overlap of word n-grams.

Words are runs of letters and digits in lower case. A text is contaminated when it shares one n-gram with
a question or solution of the evaluation files (n = 13 in the GPT-3 paper, arXiv 2005.14165). An evaluation
text shorter than n words is compared as a whole, with whole prompts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from atropos_cli.io.readers import ReadLog, ReadOptions, read_objects
from atropos_cli.io.records import Attempt, Record, text_of
from atropos_cli.io.sources import find_sources

FIELDS = (
    "question",
    "problem",
    "prompt",
    "query",
    "instruction",
    "input",
    "solution",
    "canonical_solution",
    "code",
    "completion",
    "answer",
    "text",
)
"""Fields of evaluation rows that are looked at; of messages and conversations, what users say."""

_WORD = re.compile(r"\w+")
_SHOWN = 3


def words_of(text: str) -> list[str]:
    """The text's words in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def evaluation_texts(row: dict[str, Any]) -> Iterator[str]:
    """Questions and solutions of one row of any evaluation set; of a scored group those of its task."""
    if isinstance(row.get("task"), dict):
        row = row["task"]
    for key in FIELDS:
        yield from _texts(row.get(key))
    for key in ("messages", "conversations", "turns"):
        yield from _texts(row.get(key))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict) and value.get("role", value.get("from")) in ("user", "human", "assistant", "gpt"):
        yield from _texts(value.get("content", value.get("value")))


class EvaluationIndex:
    """The n-grams of evaluation files. `matches` counts hits by file."""

    def __init__(self, n: int = 13) -> None:
        self.n = n
        self.texts = 0
        self.matches: Counter[str] = Counter()
        self.examples: list[str] = []
        self._grams: dict[int, int] = {}
        self._whole: dict[tuple[str, ...], int] = {}
        self._files: list[str] = []

    def add_files(self, paths: Sequence[str], log: ReadLog) -> None:
        """Index all rows of the files. Raises DataError as the readers do."""
        for source in find_sources(paths):
            self._files.append(source.name)
            for item in read_objects(source, ReadOptions(), log):
                for text in evaluation_texts(item.value):
                    self.add(text)

    def add(self, text: str) -> None:
        """Index one text, of the file added last."""
        file = max(len(self._files) - 1, 0)
        words = words_of(text)
        self.texts += 1
        if len(words) < self.n:
            if len(words) >= 3:  # "4" or "Paris" is no question
                self._whole.setdefault(tuple(words), file)
            return
        for gram in _grams(words, self.n):
            self._grams.setdefault(hash(gram), file)

    @property
    def ngrams(self) -> int:
        return len(self._grams)

    def prompt_is_clean(self, record: Record) -> bool:
        """False when a user's message of the prompt holds evaluation text."""
        texts = [text_of(message) for message in record.prompt if message["role"] == "user"]
        return self._clean(texts, whole=True)

    def completion_is_clean(self, attempt: Attempt) -> bool:
        """False when the completion holds an n-gram of evaluation text."""
        return self._clean([attempt.completion_text], whole=False)

    def _clean(self, texts: Iterable[str], *, whole: bool) -> bool:
        for text in texts:
            words = words_of(text)
            if whole and tuple(words) in self._whole:
                return self._found(self._whole[tuple(words)], words)
            for gram in _grams(words, self.n):
                file = self._grams.get(hash(gram))
                if file is not None:
                    return self._found(file, gram)
        return True

    def _found(self, file: int, words: Sequence[str]) -> bool:
        self.matches[self._files[file] if self._files else ""] += 1
        if len(self.examples) < _SHOWN:
            self.examples.append(" ".join(words))
        return False

    def as_json(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "files": self._files,
            "texts": self.texts,
            "ngrams": self.ngrams,
            "matches": dict(self.matches),
            "examples": self.examples,
        }


def _grams(words: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[i : i + n]) for i in range(len(words) - n + 1))
