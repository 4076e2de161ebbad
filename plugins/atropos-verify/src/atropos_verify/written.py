"""Bring what people write into one form before an answer is looked for: digits and signs of other scripts, decimal
commas where a language has them, words that change a number (minus 5, 1.5 million, 2 and a half), and struck-out text.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from fractions import Fraction

from atropos_verify.numerals import spell, unify
from atropos_verify.scan import Led, holds

_SIGNS = {
    **{char: chr(char - 0xFEE0) for char in range(0xFF01, 0xFF5F)},
    **{
        char: str(unicodedata.digit(chr(char)))
        for char in range(128, 0x1FFFF)
        if char <= sys.maxunicode and unicodedata.category(chr(char)) == "Nd"
    },
    **{char: chr(65 + char - 0x24B6) for char in range(0x24B6, 0x24D0)},
    0x066B: ".", 0x066C: ",", 0x066A: "%", 0x060C: ",", 0x3000: " ", 0x00A0: " ", 0x2009: " ", 0x202F: " ", 0x2060: "",
    0x200B: "", 0xFEFF: "", 0x200E: "", 0x200F: "",
}  # fmt: skip
_STRUCK = re.compile(r"~~(?!\s)[^~\n]{1,200}~~|<(s|del|strike)>[^<>\n]{0,200}</\1>", re.IGNORECASE)
_COMMA_NOUNS = re.compile(
    r"(?<!\w)(?:antwort|endergebnis|ergebnis|lösung|réponse|résultat|respuesta|resultado|resposta|risposta|risultato|antwoord|ответ"
    r"|odpowiedź|wynik|svaret|cevap|đáp án|jawaban(?:nya)?)(?!\w)|€",
    re.IGNORECASE,
)
_COMMA_WORDS = re.compile(
    r"(?<!\w)(?:(ist|und|sind|das|der|nicht|insgesamt|ergibt|beträgt|kostet|ein|eine|mit|für|auf|von)"
    r"|(est|les|des|une|nous|donc|qui|soit|pour|dans|avec|faut)|(los|las|una|por|el|entonces|tiene|para|del|con|más|son|es|en)"
    r"|(uma|são|portanto|os|não|para|dos|com)|(sono|gli|della|quindi|una|per|di|con)|(het|een|van|dus|voor|zijn)"
    r"|([а-яё]{3,})|(wynosi|jest|się|nie)|(är|och|det|för))(?!\w)",
    re.IGNORECASE,
)
_COMMA_DIGITS = re.compile(r"\d,\d|\d\.\d{3}(?!\d)")
_FULL_COMMA = re.compile(
    r"(?<![\d.,])(\d{1,3}(?:\.\d{3})+),(\d{1,4})(?![\d,.]\d|\d)|(?<![\d.,])(\d{1,3}(?: \d{3})+),(\d{1,4})(?!\d)"
)
_EURO = re.compile(r"(?<![\d.,])(\d+),(\d{1,2})(?=\s?(?:€|EUR\b|Euros?\b))|(?<=€)(\s?\d+),(\d{1,2})(?![\d,.]*\d)")
_LOCAL = re.compile(r"(?<![\d.,({\[])(?:(\d{1,3}(?:\.\d{3})+)(?:,(\d+))?|(\d+),(\d+))(?![\d,]|\.\d|\s*[)\]}]|, ?\d)")
_APOSTROPHES = re.compile(r"(?<!\d)\d{1,3}(?:['’]\d{3})+(?!\d)")
_SCALES = {
    "hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "tausend": 3, "millionen": 6,
    "milliarde": 9,
    "milliarden": 9, "mille": 3, "milliard": 9, "milliards": 9, "mil": 3, "millón": 6, "millones": 6, "milhões": 6,
    "milhão": 6, "milioni": 6, "miliardi": 9, "bilhões": 9, "miljoen": 6, "miljard": 9, "тысяч": 3, "тысячи": 3,
    "миллион": 6, "миллиона": 6, "миллионов": 6, "миллиардов": 9, "millions": 6, "thousands": 3, "billions": 9,
    "hundreds": 2, "bn": 9, "lakh": 5, "lakhs": 5, "crore": 7, "crores": 7, "百万": 6, "千万": 7,
    "百": 2, "千": 3, "万": 4,
    "萬": 4, "亿": 8, "億": 8, "만": 4, "억": 8,
}  # fmt: skip
_LATIN = "|".join(sorted((word for word in _SCALES if word[0] < "⺀"), key=len, reverse=True))
_WIDE = "|".join(sorted((word for word in _SCALES if word[0] >= "⺀"), key=len, reverse=True))
_SCALE_WORDS = (
    rf"(?<![A-Za-z0-9_.,])(?P<n>\d[\d,]*(?:\.\d+)?)(?P<shut>\}}?\$?)"
    rf"(?:[\s-]?(?:\\text\s*\{{\s*)?(?P<word>{_LATIN})(?![^\W_])|\s?(?P<wide>{_WIDE}))(?P<more>\s*\}})?"
)
_WORDED = re.compile(_SCALE_WORDS, re.IGNORECASE)
_SCALE = re.compile(
    rf"{_SCALE_WORDS}|(?P<money>[$€£¥₹]\s?)(?P<m>\d[\d,]*(?:\.\d+)?)\s?(?P<letter>[kKmMB])(?![^\W_]|\s*[-+*/=^)}}\\$])"
    rf"|(?<![\w.,{{])(?P<k>\d[\d,]*(?:\.\d+)?)[kK](?![^\W_]|\s*[-+*/=^)}}\\$])",
    re.IGNORECASE,
)
_LETTERS = {"k": 3, "m": 6, "b": 9}
_MINUS = Led(
    re.compile(
        r"(?:(?<![\w)\]}.])(?:minus|negative|moins|menos|meno|минус|μείον|ناقص|سالب)|負の|负|負|零下|氷点下|マイナス|마이너스)"
        r"\s*(?P<money>[$€£¥₹]?)(?=\s?\\?[$(]?\d|\s?\$?\\[dt]?frac)",
        re.IGNORECASE,
    ),
    "minus|negative|moins|menos|meno|минус|μείον|ناقص|سالب|负|負|零下|氷点下|マイナス|마이너스",
)
_UNITS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60,
    "seventy": 70, "eighty": 80, "ninety": 90,
    "null": 0, "eins": 1, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "neun": 9,
    "zehn": 10, "elf": 11, "zwölf": 12,
    "zéro": 0, "un": 1, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5, "sept": 7, "huit": 8, "neuf": 9, "dix": 10,
    "onze": 11, "douze": 12,
    "cero": 0, "uno": 1, "dos": 2, "tres": 3, "cuatro": 4, "cinco": 5, "seis": 6, "siete": 7, "ocho": 8, "nueve": 9,
    "diez": 10, "once": 11, "doce": 12,
    "due": 2, "tre": 3, "quattro": 4, "cinque": 5, "sei": 6, "sette": 7, "otto": 8, "nove": 9, "dieci": 10,
}  # fmt: skip
_UNIT_WORD = "|".join(sorted(_UNITS, key=len, reverse=True))
_WORDS = rf"(?:{_UNIT_WORD})(?:(?:[\s-]|\sand\s)(?:{_UNIT_WORD}|hundred|thousand))*(?![^\W_])"
_NUMBER_WORDS = re.compile(_WORDS, re.IGNORECASE)
_NEGATIVE = Led(
    re.compile(
        r"(?<![\w)\]}.])(?:minus|negative|moins|menos|meno)\s+"
        rf"(?P<words>{_WORDS})",
        re.IGNORECASE,
    ),
    "minus|negative|moins|menos|meno",
)
"""A sign in words before a number in words. A number in words without a sign is left as it is."""
_STATING = re.compile(
    r"(?:[:=]|(?<!\w)(?:is|are|be|equals|ist|lautet|est|es|è|é|to|get|gives))[\s*_$(\"]*$", re.IGNORECASE
)
_BINARY = re.compile(r"(?:[\d)\]}%]|\d\s{1,2}[^\W\d]{1,12}|(?<!\w)[a-z])\s*$", re.IGNORECASE)
_BELOW = re.compile(
    r"(?<![\w.,-])(\d+(?:\.\d+)?)((?:\s?°\s?[CF]?|\s+degrees?(?: \w+)?)?) below (?:zero|freezing)\b", re.IGNORECASE
)
_HALVES = re.compile(
    r"(?<![\w.,/])(\d+)\s+and\s+(?:(a|one|1)[\s-](half|third|quarter|fifth)|(two[\s-]thirds|three[\s-]quarters)|(\d+/\d+))(?![\w/])",
    re.I,
)
_PARTS = {"half": Fraction(1, 2), "third": Fraction(1, 3), "quarter": Fraction(1, 4), "fifth": Fraction(1, 5)}
_AND = re.compile(r"\d\s+and\s", re.IGNORECASE)
_LETTER = re.compile(r"\d\s?[kKmMbB](?![^\W_])")
_HAS_SCALE = re.compile(rf"\d\}}?\$?[\s-]?(?:\\text\s*\{{\s*)?(?:{_LATIN}|{_WIDE})", re.IGNORECASE)


WORDED_NUMBER = re.compile(
    r"[\s*_]*(?:(?!(?:one|un|uno)(?![^\W_])(?![\s-](?:half|third|quarter|fifth|hundred|thousand|million)|[.\s*_]*$))"
    rf"(?:{_UNIT_WORD})|a (?:hundred|thousand|million|half|third|quarter))(?![^\W_])",
    re.IGNORECASE,
)
"""A number in words: an answer that is not read. "One" alone may also be a pronoun."""


def one_script(text: str) -> str:
    """Full-width signs, digits of any script and letters in circles as ASCII; what is struck out is dropped."""
    if not text.isascii():
        text = text.translate(_SIGNS)
    return _STRUCK.sub(" ", text) if "~~" in text or "</" in text else text


def plain_numbers(text: str) -> str:
    """The text with its numbers written in one way; for text that went through `one_script`."""
    text = unify(text)
    text = _NEGATIVE.sub(_negative, _MINUS.sub(_minus, text))
    if _COMMA_DIGITS.search(text):
        text = _decimal_commas(text)
    if "'" in text or "’" in text:
        text = _APOSTROPHES.sub(lambda match: re.sub(r"\D", "", match[0]), text)
    if "below" in text:
        text = _BELOW.sub(r"-\1\2", text)
    if _AND.search(text):
        text = _HALVES.sub(_half, text)
    return _SCALE.sub(_scaled, text) if _has_scale(text) else text


def scaled(text: str) -> str:
    """1.5 million as 1500000, also as LaTeX writes it, and "negative" as a sign."""
    text = _NEGATIVE.sub(_negative, _MINUS.sub(_minus, text))
    return _WORDED.sub(_scaled, text) if _has_scale(text) else text


def _has_scale(text: str) -> bool:
    return (_LETTER.search(text) is not None) or (holds(text, _SCALES) and _HAS_SCALE.search(text) is not None)


def comma_language(text: str) -> bool:
    """Is the text in a language that writes a decimal comma? Two of one language's commonest words say so."""
    if _COMMA_NOUNS.search(text[:20_000]):
        return True
    seen: dict[int, set[str]] = {}
    for match in _COMMA_WORDS.finditer(text[:20_000]):
        words = seen.setdefault(match.lastindex or 0, set())
        words.add(match[0].lower())
        if len(words) > 1:
            return True
    return False


def _decimal_commas(text: str) -> str:
    text = _FULL_COMMA.sub(lambda m: re.sub(r"\D", "", m[1] or m[3]) + "." + (m[2] or m[4]), text)
    text = _EURO.sub(lambda m: f"{m[1] or m[3]}.{m[2] or m[4]}", text)
    return _LOCAL.sub(_local, text) if comma_language(text) else text


def _local(match: re.Match[str]) -> str:
    whole = match[3] or match[1].replace(".", "")
    fraction = match[4] or match[2]
    return f"{whole}.{fraction}" if fraction else whole


def _minus(match: re.Match[str]) -> str:
    if _BINARY.search(match.string, max(0, match.start() - 16), match.start()):
        return match[0]
    return "-" + match["money"]


def _negative(match: re.Match[str]) -> str:
    if not _STATING.search(match.string, max(0, match.start() - 24), match.start()):
        return match[0]
    return f"-{worded_value(match['words'])}"


def worded_value(text: str) -> int | None:
    """The value of the number in words that a text begins with, up to the thousands; None for anything else."""
    found = _NUMBER_WORDS.match(text)
    if found is None:
        return None
    total = part = 0
    for word in re.split(r"[\s-]+", found[0].lower()):
        if word == "hundred":
            part *= 100
        elif word == "thousand":
            total, part = (total + part) * 1000, 0
        else:
            part += _UNITS.get(word, 0)
    return total + part


def _half(match: re.Match[str]) -> str:
    if match[5]:
        return f"{match[1]} {match[5]}"
    part = (
        _PARTS[match[3].lower()]
        if match[3]
        else Fraction(2, 3)
        if match[4].lower().startswith("two")
        else Fraction(3, 4)
    )
    return spell(int(match[1]) + part)


def _scaled(match: re.Match[str]) -> str:
    found = match.groupdict()
    digits = (found["n"] or found["m"] or found["k"]).replace(",", "")
    if len(digits) > 30:
        return match[0]
    word = (found["word"] or found["wide"] or "").lower()
    power = _SCALES[word] if word else _LETTERS[(found["letter"] or "k").lower()]
    value = spell(Fraction(digits) * 10**power)
    if not word:
        return (found["money"] or "") + value
    opened, closed = "\\text" in match[0], found["more"] or ""
    return value + found["shut"] + (closed if not opened else "" if closed else "\\text{ ")
