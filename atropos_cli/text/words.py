"""What counts as a word, in any script: one rule for lengths, n-grams, near-duplicates and repetition.

The boundaries are those of Unicode Standard Annex #29 without a dictionary. A word is a run of letters and digits
with their combining marks ("हिन्दी", "don't", "3.14", "snake_case"). In scripts written without blanks (Chinese,
Japanese kana, Thai, Lao, Khmer, Burmese, ...) each sign with its marks stands for itself; `weight` says how much of a
word it is. Unlike the annex, a dot joins digits only: "end.Next" is two words.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

WORD = 6
"""The weight of a whole word."""

_HAN = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_KANA = "\u3041-\u3096\u309d-\u309f"
_YI = "\ua000-\ua48c"
_SOUTH_EAST = (  # letters of Thai, Lao, Burmese, Khmer, Tai, Balinese, Javanese; their digits make numbers
    "\u0e01-\u0e4f\u0e80-\u0ecf\u0edc-\u0edf\u1000-\u103f\u104e-\u108f\u109a-\u109d\u1780-\u17d3\u17d7\u17dc\u1950-\u19cf"
    "\u1a20-\u1a7f\u1aa7\u1b05-\u1b4b\ua984-\ua9b2\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaadf\U00011700-\U0001171a"
)
_JOINED = r"(?:_+|(?<={letter})'(?={letter})|(?<=\d)[.,](?=\d))"
_ASCII_WORD = re.compile(rf"[A-Za-z0-9]+(?:{_JOINED.format(letter='[A-Za-z]')}[A-Za-z0-9]+)*", re.ASCII)
# A star multiplies where it stands alike on both sides: "2*3", "a * b". "**", "*word*" are emphasis; "\\(" is LaTeX's.
_ASCII_SYMBOL = r"[-+<=>^|~/%]|(?<=[\w)\]}])\*(?=[\w(\[{\\])|(?<=[ \t])\*(?=[ \t])|(?<!\\)[()\[\]]"
_ASCII_UNIT = re.compile(f"{_ASCII_WORD.pattern}|{_ASCII_SYMBOL}", re.ASCII)
_APOSTROPHE = re.compile("[\u2018\u2019]")
_MINUS = re.compile("[\u2010\u2011\u2212]")
_VOWELS = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u0652\u0656-\u065f\u0670]"
)
"""Points of Hebrew and Arabic that most writers leave out, and the stroke that only makes a word longer."""
_FOREIGN_DIGIT = re.compile(r"[^\D0-9]")


def words(text: str) -> list[str]:
    """The words of a text, as they are written."""
    return (_ASCII_WORD if text.isascii() else _patterns()[0]).findall(text)


def units(text: str) -> list[str]:
    """Words, and the symbols and brackets that change what a formula or a program says: "3 - 2" is not "3 + 2"."""
    return (_ASCII_UNIT if text.isascii() else _patterns()[1]).findall(text)


def normal_text(text: str) -> str:
    """The text with all differences removed that readers ignore.

    Case, full-width and compatibility forms, composed and decomposed letters, digits of other scripts, curly
    apostrophes, invisible signs, vowel points of Arabic and Hebrew.
    """
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    text = _APOSTROPHE.sub("'", _MINUS.sub("-", text))
    text = _VOWELS.sub("", _patterns()[2].sub("", text))
    return _FOREIGN_DIGIT.sub(_digit, text)


def _digit(match: re.Match[str]) -> str:
    value = unicodedata.decimal(match[0], None)
    return match[0] if value is None else str(value)


def weight(unit: str) -> int:
    """How much of a word a unit is: WORD for a word, less for a sign of a script without blanks, 0 for a symbol.

    Two signs of Chinese or Japanese make a word on average, three of Thai and its neighbours.
    """
    first = unit[0]
    if first < "\u0e01":
        return WORD if first.isalnum() else 0
    if _sign_of(_HAN + _KANA + _YI).match(first):
        return WORD // 2
    if _sign_of(_SOUTH_EAST).match(first):
        return WORD // 3
    return WORD if first.isalnum() else 0


def word_grams(found: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    """All shortest runs of words (no symbols) that weigh n of them; none when the whole text weighs less."""
    weights = [] if all(map(str.isascii, found)) else [weight(unit) for unit in found]
    if weights.count(WORD) == len(weights):
        yield from (tuple(found[i : i + n]) for i in range(len(found) - n + 1))
        return
    end = total = 0
    for begin in range(len(found)):
        while total < n * WORD:
            if end == len(found):
                return
            total += weights[end]
            end += 1
        yield tuple(found[begin:end])
        total -= weights[begin]


@lru_cache(maxsize=2)
def _sign_of(ranges: str) -> re.Pattern[str]:
    return re.compile(f"[{ranges}]")


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """(word, word or symbol, sign without a look of its own), made of the character table of this Python."""
    found: dict[str, list[int]] = {"M": [], "S": [], "C": []}
    for code in (*range(0x80, 0x20000), *range(0xE0000, 0xE01F0)):
        category = unicodedata.category(chr(code))
        if category in ("Mn", "Mc", "Me"):
            found["M"].append(code)
        elif category in ("Sm", "So"):
            found["S"].append(code)
        elif category == "Cf":
            found["C"].append(code)
    marks = _class(found["M"]) + "\u00ad\u200c\u200d"
    signs = _HAN + _KANA + _YI + _SOUTH_EAST
    piece = rf"[^\W_{signs}]+(?:[{marks}]+[^\W_{signs}]*)*"
    joined = _JOINED.format(letter=rf"[^\W\d_{signs}]").replace("'", "['\u2019]")
    word = rf"{piece}(?:{joined}{piece})*|[{signs}][{marks}]*"
    symbol = f"{_ASCII_SYMBOL}|[{_class(found['S'])}]"
    return re.compile(word), re.compile(f"{word}|{symbol}"), re.compile(f"[{_class(found['C'])}]")


def _class(codes: list[int]) -> str:
    """The inside of a character class that holds these code points."""
    parts: list[str] = []
    begin = end = -2
    for code in (*codes, sys.maxunicode + 1):
        if code != end + 1:
            if begin >= 0:
                parts.append(f"\\U{begin:08x}-\\U{end:08x}")
            begin = code
        end = code
    return "".join(parts)
