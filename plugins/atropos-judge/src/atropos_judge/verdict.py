"""Read the score out of a judge's reply, by a strict rule: a wrong number is worse than none.

    thinking blocks are dropped
    1. JSON objects with a known key ({"score": 7}, {"SCORE": "8/10"}) and labelled scores ("**Score:** 6",
       "Rating: 4 out of 5", "Verdict: pass")
    2. if there is none of these: a reply that is nothing but a score or a word, a leading yes or no, or
       scores given with the scale's own denominator ("I give it 8/10")

All scores found by the rule that applies must be the same; if they are not, the last line decides when it is nothing
but a labelled score (the form that was asked for), else the reply is ambiguous. Numbers in prose are never taken.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from atropos_cli.sdk import split_thinking
from atropos_judge.errors import AmbiguousVerdict, NoVerdict, OutOfScale
from atropos_judge.scale import Scale

KEYS = ("score", "final_score", "overall_score", "rating", "grade", "verdict", "result", "judgement", "judgment")
KEYS_OF_WORDS = ("pass", "passed", "correct", "decision", "label")
_LABELS = "score|rating|grade|verdict|judge?ment|decision|result"
_MARKS = r"[\s*_`\"'\\]{0,20}"
_NUMBER = r"[-+]?\d+(?:\.\d+)?"
_OF = rf"(?P<of>\s*/\s*(?P<per>{_NUMBER})|\s+out\s+of\s+(?P<out>{_NUMBER})|\s*(?P<percent>%))?"
_VALUE = rf"(?P<number>{_NUMBER})(?![\d.]*\d){_OF}"
_LABEL = re.compile(
    rf"(?<![A-Za-z0-9])(?:{_LABELS})(?![A-Za-z0-9]){_MARKS}(?:\([^()\n]{{0,30}}\))?{_MARKS}(?:(?::|=|-{{1,2}}|–|—)|\b(?:is|of)\b:?){_MARKS}"
    rf"(?:boxed\{{)?(?:{_VALUE}|(?P<word>[A-Za-z]+)(?![\w/-]))",
    re.IGNORECASE,
)
_FRACTION = re.compile(rf"(?<![\d./]){_VALUE}")
_RANGE_AFTER = re.compile(r"\s*(?:-|–|—|to|or)\s*\d|,\d")
_BARE = re.compile(rf"{_MARKS}{_VALUE}{_MARKS}\.?{_MARKS}")
_WORD_LINE = re.compile(r"[\s*_`\"'#>]*([A-Za-z]+)[\s*_`\"'.!]*")
_LEADING = re.compile(rf"{_MARKS}([A-Za-z]+){_MARKS}[,.:;!–—-]")
_PASS = {"pass", "passed", "passes", "yes", "true", "correct", "right", "accept", "accepted"}
_FAIL = {"fail", "failed", "fails", "no", "false", "incorrect", "wrong", "reject", "rejected"}
_DIGITS = {
    word: float(number)
    for number, word in enumerate("zero one two three four five six seven eight nine ten".split())  # noqa: SIM905
}
_LONGEST = 100_000


def read_verdict(reply: str, scale: Scale) -> float:
    """The score, on the scale. Raises NoVerdict, AmbiguousVerdict or OutOfScale, each with the words of the reply."""
    _, answer = split_thinking(reply[-_LONGEST:])
    if answer is None:
        raise NoVerdict(f"the judge was still thinking when its reply ended: {shown(reply)}")
    text = answer.strip()
    if not text:
        raise NoVerdict("the judge's reply is empty")
    reader = _Reader(text, scale)
    for rule in (reader.marked, reader.bare):
        scores = list(rule())
        if scores:
            return _checked(_one(scores, reader, text), scale, text)
    raise NoVerdict(f"no score {scale.in_words} in the judge's reply: {shown(text)}")


def shown(text: str) -> str:
    """The end of a text, on one line: a verdict stands there, if anywhere."""
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= 200 else "..." + flat[-200:])


def _one(scores: Sequence[float], reader: _Reader, text: str) -> float:
    if all(score == scores[0] for score in scores[1:]):
        return scores[0]
    last = reader.last_line()
    if last is None:
        found = ", ".join(f"{score:g}" for score in dict.fromkeys(scores))
        raise AmbiguousVerdict(f"several scores ({found}) in the judge's reply: {shown(text)}")
    return last


def _checked(score: float, scale: Scale, text: str) -> float:
    if not math.isfinite(score):
        raise NoVerdict(f"the judge's score is not a number: {shown(text)}")
    if score not in scale:
        raise OutOfScale(f"the judge's score {score:g} is not {scale.in_words}: {shown(text)}")
    return score


class _Reader:
    """The rules, applied to one reply."""

    def __init__(self, text: str, scale: Scale) -> None:
        self.text = text
        self.scale = scale

    def marked(self) -> Iterator[float]:
        """JSON objects with a known key, and labelled scores outside them."""
        rest = self.text
        for start, end, data in _objects(self.text):
            value = self._of_object(data)
            if value is not None:
                yield value
                # Blanked, not cut: "score": 7 must not be read as a labelled score once more.
                rest = rest[:start] + " " * (end - start) + rest[end:]
        yield from self._labelled(rest)

    def bare(self) -> Iterator[float]:
        """A reply that is nothing but a score, or scores out of the scale's own highest."""
        if self.scale.words:
            yield from self._words()
            return
        match = _BARE.fullmatch(self.text)
        if match is not None:
            yield self._number(match)
            return
        for match in _FRACTION.finditer(self.text):
            per = match["per"] or match["out"]
            if per is not None and float(per) == self.scale.high:
                yield float(match["number"])

    def last_line(self) -> float | None:
        """The score of a last line that is nothing but a labelled score."""
        lines = [line for line in self.text.splitlines() if line.strip("*_`# \t")]
        line = lines[-1].strip("*_`# \t.") if lines else ""
        match = re.fullmatch(rf"(?:(?:my|the|final|overall|total)\s+)*{_LABEL.pattern}", line, re.IGNORECASE)
        return None if match is None else self._of_match(match)

    def _labelled(self, text: str) -> Iterator[float]:
        for match in _LABEL.finditer(text):
            if match["number"] is not None and _RANGE_AFTER.match(text, match.end()) and match["of"] is None:
                raise AmbiguousVerdict(f"a range instead of a score in the judge's reply: {shown(match.group())}")
            value = self._of_match(match)
            if value is not None:
                yield value

    def _of_match(self, match: re.Match[str]) -> float | None:
        return self._number(match) if match["number"] is not None else self._word(match["word"])

    def _number(self, match: re.Match[str]) -> float:
        """The number, on the scale. Raises OutOfScale when it is given out of another highest."""
        number = float(match["number"])
        if match["of"] is not None:
            per = 100.0 if match["percent"] else float(match["per"] or match["out"])
            if per != self.scale.high:
                raise OutOfScale(f"{match['number']}{match['of']} is not {self.scale.in_words}")
        if self.scale.words and number not in (0.0, 1.0):
            raise OutOfScale(f"{number:g} is neither pass nor fail")
        return number

    def _word(self, word: str) -> float | None:
        plain = word.lower()
        if self.scale.words:
            return 1.0 if plain in _PASS else 0.0 if plain in _FAIL else None
        return _DIGITS.get(plain)

    def _words(self) -> Iterator[float]:
        """Lines that are one word; else a leading word, unless a word of the other kind follows."""
        match = _BARE.fullmatch(self.text)
        if match is not None:
            yield self._number(match)
            return
        lines = [match for line in self.text.splitlines() if (match := _WORD_LINE.fullmatch(line))]
        found = [value for match in lines if (value := self._word(match[1])) is not None]
        if found:
            yield from found
            return
        match = _LEADING.match(self.text)
        value = self._word(match[1]) if match is not None else None
        if value is not None:
            others = {self._word(word) for word in re.findall(r"[A-Za-z]+", self.text)} - {None, value}
            if others:
                raise AmbiguousVerdict(f"words of both kinds in the judge's reply: {shown(self.text)}")
            yield value

    def _of_object(self, data: dict[str, Any]) -> float | None:
        """The score of a JSON object; None when it has no known key. Raises NoVerdict when its value is none."""
        plain = {str(key).strip().lower().replace(" ", "_").replace("-", "_"): value for key, value in data.items()}
        keys = KEYS + KEYS_OF_WORDS if self.scale.words else KEYS
        key = next((key for key in keys if key in plain), None)
        if key is None:
            return None
        value = plain[key]
        if isinstance(value, bool):
            if self.scale.words:
                return float(value)
        elif isinstance(value, int | float):
            return float(value)
        elif isinstance(value, str):
            read = self._of_text(value)
            if read is not None:
                return read
        raise NoVerdict(f"the judge's {key} {value!r} is not {self.scale.in_words}")

    def _of_text(self, text: str) -> float | None:
        match = _BARE.fullmatch(text)
        if match is not None:
            return self._number(match)
        word = _WORD_LINE.fullmatch(text)
        return self._word(word[1]) if word is not None else None


def _objects(text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(start, end, object) of the JSON objects that stand in the text, outermost ones only."""
    decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode
    position = 0
    tries = 0
    while (start := text.find("{", position)) >= 0 and tries < 1000:
        tries += 1
        try:
            data, end = decode(text, start)
        except (ValueError, RecursionError):
            position = start + 1
            continue
        if isinstance(data, dict):
            yield start, end, data
        position = end
