"""Find training text that holds pieces of evaluation data, by overlap of word n-grams.

Words are those of `domain.words`, in the form that makes case and width alike. A text is contaminated when it shares
one n-gram with a question or solution of the evaluation files (n = 13 in the GPT-3 paper, arXiv 2005.14165), or when
it holds a whole question that is shorter than n words, wherever a template puts it. Looked at is every message:
system, user, tool results, replies, their thinking and the arguments of their tool calls.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from atropos_cli.datasets.filter.evaluation_texts import QUESTIONS, EvaluationText, evaluation_texts
from atropos_cli.errors import DataError
from atropos_cli.io.readers import ReadLog, ReadOptions, read_objects
from atropos_cli.io.records import Message, Record, StoredRollout
from atropos_cli.io.sources import Source, find_sources
from atropos_cli.stats.tallies import add_tally, tally_state
from atropos_cli.text.words import WORD, normal_text, units, weight, word_grams, words

SHORTEST = 3
"""Words of the shortest question that is looked for: "4" or "Why?" occurs everywhere."""

_ESCAPED = re.compile(r"\\+u(?!d[89a-f])([0-9a-f]{4})", re.IGNORECASE)  # no half of a pair
_ESCAPED_BLANK = re.compile(r"\\+[nrt](?![a-z])")  # "\\nu" and "\\times" are LaTeX
_LINE_MARK = re.compile(r"^[ \t]*(?:(?:>+|//+|--+|\*+|%+|\|)[ \t]+)+", re.MULTILINE)
_TAG = re.compile(r"</?(?:a|b|i|u|em|strong|sub|sup|span|code|mark|small|font)(?:\s[^<>]*)?>", re.IGNORECASE)
_BLOCK_TAG = re.compile(r"</?(?:br|p|div|li|ul|ol|td|tr|th|table|h[1-6]|pre)(?:\s[^<>]*)?/?>", re.IGNORECASE)

_SHOWN = 3
_HITS = 10_000  # different texts found that are counted
_OFTEN = 10  # times that the same words are found before they look like a template


class EvaluationIndex:
    """The n-grams and short questions of evaluation files. `matches` counts hits by file.

    too_short: questions that are not looked for. without_text: rows from which no text was read. unseen: rollouts
    whose text is not stored, or not all of it is text.
    """

    def __init__(self, n: int = 13) -> None:
        self.n = n
        self.texts = 0
        self.too_short = 0
        self.without_text: Counter[str] = Counter()
        self.unseen = 0
        self.matches: Counter[str] = Counter()
        self.examples: list[str] = []
        self._hits: Counter[str] = Counter()
        self._grams: dict[int, int] = {}
        self._short: dict[tuple[str, ...], list[tuple[tuple[str, ...], int]]] = {}
        self._lengths: dict[tuple[str, str, str], set[int]] = {}
        self._files: list[str] = []

    def add_files(self, paths: Sequence[str], log: ReadLog) -> None:
        """Index all rows of the files. Raises DataError as the readers do, and for a file without any text."""
        for source in find_sources(paths):
            self._files.append(source.name)
            before, rows = self.texts, 0
            fields: dict[str, None] = {}
            for item in read_objects(source, ReadOptions(), log):
                rows += 1
                found = list(evaluation_texts(item.value))
                for text in found:
                    self.add(text)
                if not found:
                    self.without_text[source.name] += 1
                    if len(fields) < 20:
                        fields.update(dict.fromkeys(item.value))
            if self.texts == before:
                raise _no_text(source, rows, list(fields))

    def add(self, text: EvaluationText) -> None:
        """Index one question or solution, of the file added last."""
        file = max(len(self._files) - 1, 0)
        self.texts += 1
        long = False
        for part in text.parts:
            for gram in word_grams(words(_plain(part)), self.n):
                long = True
                self._grams.setdefault(hash(gram), file)
        if long or not text.question:
            return
        parts = sorted((tuple(units(_plain(part))) for part in text.parts), key=len, reverse=True)
        if sum(weight(unit) for part in parts for unit in part) < SHORTEST * WORD or len(parts[0]) < 3:
            self.too_short += 1
            return
        first, second, third = parts[0][:3]
        self._lengths.setdefault((first, second, third), set()).add(len(parts[0]))
        known = self._short.setdefault(parts[0], [])
        rest = tuple(f" {' '.join(part)} " for part in parts[1:])
        if all(rest != other for other, _ in known):
            known.append((rest, file))

    @property
    def ngrams(self) -> int:
        return len(self._grams)

    def prompt_is_clean(self, record: Record) -> bool:
        """False when a message of the task's prompt holds evaluation text."""
        return self._clean([text for message in record.prompt for text in texts_of(message)])

    def place_in(self, record: Record, rollout: StoredRollout) -> str | None:
        """Where a rollout at a clean prompt holds evaluation text: its own "prompt", the "completion", or None."""
        if not rollout.messages or any(map(_has_other_parts, rollout.messages)):
            self.unseen += 1
        before = rollout.prompt
        if before != record.prompt and not self._clean([text for message in before for text in texts_of(message)]):
            return "prompt"
        after = [text for message in rollout.completion for text in texts_of(message)]
        return None if self._clean(after) else "completion"

    def _clean(self, texts: Iterable[str]) -> bool:
        split = [units(_plain(text)) for text in texts]
        for found in split:
            for gram in word_grams([unit for unit in found if unit[0].isalnum()], self.n):
                file = self._grams.get(hash(gram))
                if file is not None:
                    return self._found(file, gram)
        return not self._lengths or all(self._holds_no_question(found, split) for found in split)

    def _holds_no_question(self, found: list[str], all_texts: Sequence[list[str]]) -> bool:
        known = self._lengths
        places = [i for i, prefix in enumerate(zip(found, found[1:], found[2:], strict=False)) if prefix in known]
        for i in places:
            for length in known[found[i], found[i + 1], found[i + 2]]:
                for rest, file in self._short.get(tuple(found[i : i + length]), ()):
                    whole = f" {' '.join(unit for text in all_texts for unit in text)} " if rest else ""
                    if all(part in whole for part in rest):
                        return self._found(file, found[i : i + length])
        return True

    def _found(self, file: int, found: Sequence[str]) -> bool:
        self.matches[self._files[file] if self._files else ""] += 1
        text = " ".join(found)
        if len(self.examples) < _SHOWN:
            self.examples.append(text)
        if text in self._hits or len(self._hits) < _HITS:
            self._hits[text] += 1
        return False

    def tally(self) -> dict[str, Any]:
        """The findings, for `absorb`."""
        return tally_state(self, "unseen", "matches", "examples", "_hits")

    def absorb(self, state: dict[str, Any]) -> None:
        """Add the findings in another part of the input."""
        add_tally(self, state)
        del self.examples[_SHOWN:]

    def warnings(self) -> list[str]:
        """The questions that were skipped, and the parts that were not searched."""
        said = [
            f"{name}: {count} rows hold no text that was read: they were not looked for"
            for name, count in self.without_text.items()
        ]
        if self.too_short:
            said.append(
                f"{self.too_short} evaluation questions have fewer than {SHORTEST} words: they were not looked for"
            )
        for text, count in self._hits.most_common(1):
            finds = self.matches.total()
            if count >= _OFTEN and count > finds / 2:
                said.append(
                    f"{count} of {finds} finds are the same words, {text!r}: "
                    "if that is a template and no question, take it out of the evaluation file"
                )
        if self.unseen:
            said.append(
                f"{self.unseen} rollouts hold token ids, images or other parts that are not text: "
                "evaluation data in those was not looked for"
            )
        return said

    def as_json(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "files": self._files,
            "texts": self.texts,
            "ngrams": self.ngrams,
            "short_questions": sum(map(len, self._short.values())),
            "too_short": self.too_short,
            "rows_without_text": dict(self.without_text),
            "rollouts_not_all_text": self.unseen,
            "matches": dict(self.matches),
            "examples": self.examples,
        }


def _no_text(source: Source, rows: int, fields: Sequence[str]) -> DataError:
    if not rows:
        return DataError(f"{source.name}: no rows, so there is nothing to look for", hint="is it the right file?")
    return DataError(
        f"{source.name}: no text was read from its {rows} rows, so nothing would be found; "
        f"their fields are {', '.join(fields)}",
        hint=f"name the field of the question as one of {', '.join(QUESTIONS[:10])}",
    )


def _plain(text: str) -> str:
    """The normal text without what a quotation, a comment, a page or an escaped string puts around and into it."""
    if "\\" in text:
        text = _ESCAPED_BLANK.sub("\n", _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text))
    if "&" in text:
        text = html.unescape(text)
    if "<" in text:
        text = _BLOCK_TAG.sub("\n", _TAG.sub("", text))
    return normal_text(_LINE_MARK.sub("", text))


def texts_of(message: Message) -> Iterator[str]:
    """Every text of a message: content, thinking, arguments of tool calls; JSON inside is read for its texts."""
    content = message.get("content")
    if isinstance(content, str):
        yield from _unpacked(content)
    elif isinstance(content, list):
        for part in content:
            yield from _strings(part)
    yield from _strings(message.get("reasoning"))
    for call in message.get("tool_calls") or ():
        arguments = call["function"].get("arguments")
        yield from _unpacked(arguments) if isinstance(arguments, str) else _strings(arguments)


def _unpacked(text: str) -> Iterator[str]:
    """The text; and where it is JSON with escapes in it, the texts that the JSON holds."""
    yield text
    if text[:1] in ("{", "[", '"') and "\\" in text:
        try:
            yield from _strings(json.loads(text))
        except (ValueError, RecursionError):
            return


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _has_other_parts(message: Message) -> bool:
    content = message.get("content")
    return isinstance(content, list) and not all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    )
