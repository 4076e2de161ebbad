"""Find a pattern by the words that it begins with: a rule costs nothing in a text that holds none of its words.

Python's `re` tries an alternation of words, case aside, at every position of a text; `str.find` is far faster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator


class Led:
    """A pattern whose every match begins with one of the heads ("wait|oops"); case does not matter.

    `finditer` and `search` give what those of the pattern give, in the same order.
    """

    def __init__(self, pattern: re.Pattern[str], heads: str) -> None:
        self.pattern = pattern
        words = set(heads.lower().split("|"))
        least = [word for word in words if not any(word != other and word.startswith(other) for other in words)]
        self.heads = tuple(sorted(least))
        self._ascii = tuple(word for word in self.heads if word.isascii())

    def finditer(self, text: str, begin: int = 0, end: int | None = None) -> Iterator[re.Match[str]]:
        """The matches from left to right that do not overlap."""
        stop = len(text) if end is None else min(end, len(text))
        low = text.lower()
        if len(low) != len(text):  # a letter that becomes two, such as a dotted capital I
            yield from self.pattern.finditer(text, begin, stop)
            return
        position = begin
        for start in self._starts(low, begin, stop):
            if start >= position and (match := self.pattern.match(text, start, stop)) is not None:
                yield match
                position = match.end()

    def search(self, text: str, begin: int = 0) -> re.Match[str] | None:
        """The first match, or None."""
        return next(self.finditer(text, begin), None)

    def sub(self, replacement: Callable[[re.Match[str]], str], text: str) -> str:
        """The text with every match replaced."""
        parts, position = [], 0
        for match in self.finditer(text):
            parts += [text[position : match.start()], replacement(match)]
            position = match.end()
        return "".join([*parts, text[position:]]) if parts else text

    def match(self, text: str, begin: int = 0) -> re.Match[str] | None:
        """The match that begins at a position, or None."""
        return self.pattern.match(text, begin)

    def _starts(self, low: str, begin: int, stop: int) -> list[int]:
        starts = []
        for head in self._ascii if low.isascii() else self.heads:
            at = low.find(head, begin, stop)
            while at >= 0:
                starts.append(at)
                at = low.find(head, at + 1, stop)
        starts.sort()
        return starts


def near(pattern: re.Pattern[str], text: str, words: str, reach: int) -> Iterator[re.Match[str]]:
    """The matches of a pattern that begin at most `reach` characters before one of the words ("right|best")."""
    low = text.lower()
    if len(low) != len(text):
        yield from pattern.finditer(text)
        return
    found = re.finditer(words, low) if holds(low, words.split("|")) else ()
    position = 0
    for word in found:
        for match in pattern.finditer(text, max(position, word.start() - reach), min(len(text), word.end() + 16)):
            yield match
            position = match.end()
        position = max(position, word.start() - reach)


def holds(text: str, words: Iterable[str]) -> bool:
    """Does a text hold one of some words (in lower case), whatever their case there?"""
    low = text.lower()
    return any(word in low for word in words)


def head(expression: str) -> str:
    """The letters with which every match of a plain regular expression begins: "svare" for "svaret?"."""
    match = re.match(r"[^(\[\\?*+.|]*", expression)
    plain = match[0] if match else ""
    return plain[:-1] if expression[len(plain) : len(plain) + 1] in ("?", "*") else plain
