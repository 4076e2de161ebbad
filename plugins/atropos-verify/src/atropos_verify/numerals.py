"""Find numbers in running text: $72.00, 1,000,000, -5, 3/4, 1 1/2, 50 %, 1e2, \\frac{1}{2}."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from atropos_verify.arithmetic import TooLarge, evaluate
from atropos_verify.latex import VULGAR

_MINUS = "-−–－﹣"
_CURRENCY = r"(?:US\$|\\\$|[$€£¥₹])"
_DIGITS = r"(?:\d{1,3}(?:,\d{2,3})*,\d{3}(?![\d])|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,4}(?![\w]))?|(?<![\w.])\.\d+"
NUMBER = re.compile(
    rf"(?<![A-Za-z0-9_\\{{^])(?P<before>(?:(?<![\w)\]}}%])[{_MINUS}+])?\s?{_CURRENCY}?\s?[{_MINUS}]?)"
    rf"(?P<body>\\[dt]?frac\s*\{{[{_MINUS}]?\d+\}}\s*\{{\d+\}}|\\[dt]?frac\s*\d\s*\d"
    rf"|\d+\s*\\[dt]?frac\s*\{{\d+\}}\s*\{{\d+\}}|\d*\s?[{''.join(VULGAR)}]"
    rf"|\d+ \d+/\d+(?![\d/])|\d+/\d+(?![\d/.])|{_DIGITS})"
    rf"(?P<power>\s?(?:\\times|×|\*|x)\s?10\s?\^\s?\{{?[{_MINUS}]?\d{{1,3}}\}}?)?"
)
_TEX_SEPARATORS = re.compile(r"(?<=\d)(?:\{,\}|,\\!\s?|\\,|[\u00a0\u2009\u202f])(?=\d{3}(?!\d))")
_BROKEN_GROUPS = re.compile(r"\d{1,3}(?:,\d{3})+|\d{1,2}(?:,\d{2})+,\d{3}")
_SPACED = re.compile(r"\d{1,3}(?: \d{3})+(?![\d/])")
_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]+)?")
MAX_NUMBER = 400
_TAIL = 200
MOST_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text, its place, its exact value, and one spelling for it."""

    start: int
    end: int
    value: Fraction

    @property
    def text(self) -> str:
        return spell(self.value)


def spell(value: Fraction) -> str:
    """The number as a decimal when that ends, else as p/q: 72, 3.01, -5, 1/3."""
    bottom = value.denominator
    twos = fives = 0
    while bottom % 2 == 0:
        bottom, twos = bottom // 2, twos + 1
    while bottom % 5 == 0:
        bottom, fives = bottom // 5, fives + 1
    places = max(twos, fives)
    if bottom != 1 or places > MAX_NUMBER or value.numerator.bit_length() > 10_000:
        return f"{value.numerator}/{value.denominator}" if value.numerator.bit_length() <= 10_000 else "a huge number"
    if places == 0:
        return str(value.numerator)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return ("-" if value < 0 else "") + digits[:-places] + "." + digits[-places:]


def unify(text: str) -> str:
    """TeX and no-break separators inside digits dropped: 1{,}000 is 1000."""
    return _TEX_SEPARATORS.sub("", text)


def numbers(text: str) -> Iterator[Number]:
    """All numbers of a text that went through `unify`, left to right."""
    for match in NUMBER.finditer(text):
        value = _value(match)
        if value is not None:
            yield Number(match.start(), match.end(), value)


def numbers_from_the_end(text: str, begin: int = 0) -> Iterator[Number]:
    """The last numbers of a text, the last one first; earlier ones are read only when they are asked for."""
    end, width, seen = len(text), _TAIL, 0
    while end > begin and seen < MOST_LOOKED_AT:
        start = max(begin, end - width)
        start = max(text.rfind("\n", begin, start) + 1, text.rfind(". ", begin, start) + 1, begin)
        for match in reversed(deque(NUMBER.finditer(text, start, end), maxlen=MOST_LOOKED_AT - seen)):
            seen += 1
            value = _value(match)
            if value is not None:
                yield Number(match.start(), match.end(), value)
        end, width = start, 8 * width


def spaced_number(text: str) -> Number | None:
    """1 234 567 at the start of the text; only where the spaces cannot separate two numbers."""
    match = _SPACED.match(text)
    if match is None:
        return None
    return Number(match.start(), match.end(), Fraction(match[0].replace(" ", "")))


def _value(match: re.Match[str]) -> Fraction | None:
    body = match["body"]
    if len(body) > MAX_NUMBER:
        return None
    if _DECIMAL.fullmatch(body) and not match["power"]:
        value = Fraction(body)
        return -value if match["before"] and any(minus in match["before"] for minus in _MINUS) else value
    for minus in _MINUS:
        body = body.replace(minus, "-")
    if "," in body and not _BROKEN_GROUPS.match(body):
        return None
    body = re.sub(r"\\[dt]frac", r"\\frac", body.replace(",", ""))
    body = re.sub(r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}", body)
    for char, (top, bottom) in VULGAR.items():
        body = body.replace(char, rf"\frac{{{top}}}{{{bottom}}}")
    power = match["power"] or ""
    if power:
        exponent = re.search(r"[^\d]?(\d+)\}?$", power.split("^", 1)[1])
        sign = "-" if any(minus in power for minus in _MINUS) else ""
        body += rf"\times10^{{{sign}{exponent[1] if exponent else 0}}}"
    try:
        worked = evaluate(body)
    except TooLarge:
        return None
    if worked is None:
        return None
    negative = any(minus in match["before"] for minus in _MINUS)
    return -worked.value if negative else worked.value
