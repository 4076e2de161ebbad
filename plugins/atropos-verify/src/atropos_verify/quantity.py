"""Numbers with an optional unit: 48\\text{ cm}, \\$18, 64\\%, 30^\\circ, 1{,}000 dollars, 11_2.

A unit is compared, never converted. A bare number is taken in the other side's unit, so 48 equals
48 cm and 64 equals 64 %; 48 kg does not equal 48 cm, and 0.64 does not equal 64 %. Two units conflict
only when both are known here: nouns (12 apples, 12 pieces of fruit) vary too much to be compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from atropos_verify.arithmetic import Value, evaluate
from atropos_verify.latex import join_groups, untext

_SYNONYMS = {
    "%": "percent percentage pct",
    "$": "dollar usd us$ buck",
    "€": "euro eur",
    "£": "pound gbp",
    "¢": "cent",
    "°": "degree deg",
    "": "unit square-unit sq-unit cubic-unit",
    "mm": "millimeter millimetre",
    "cm": "centimeter centimetre",
    "m": "meter metre",
    "km": "kilometer kilometre",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yard",
    "mi": "mile",
    "mg": "milligram",
    "g": "gram gramme gm",
    "kg": "kilogram kilo kgs",
    "lb": "pound-mass lbs",
    "oz": "ounce",
    "ml": "milliliter millilitre",
    "l": "liter litre",
    "s": "second sec",
    "min": "minute",
    "h": "hour hr",
    "d": "day",
    "mph": "mile-per-hour mi/h miles/hour mi/hr",
    "km/h": "kph kmh kilometer-per-hour kilometre-per-hour km/hr",
    "m/s": "meter-per-second metre-per-second",
    "t": "ton tonne",
    "gal": "gallon",
    "qt": "quart",
    "pt": "pint",
    "week": "wk",
    "month": "mo",
    "year": "yr",
    "rad": "radian",
    "ha": "hectare",
    "acre": "acres",
}
_CANONICAL = {word: unit for unit, words in _SYNONYMS.items() for word in words.split()}
_BARE_UNITS = {word for word in (*_CANONICAL, *_SYNONYMS) if len(word) >= 2 and word.isalpha()}
FUNCTIONS = frozenset(
    {
        *("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh"),
        *("log", "ln", "exp", "sqrt", "frac", "pi", "infty", "cup", "cap", "leq", "geq", "neq", "pmod", "mod"),
        *("gcd", "lcm", "max", "min", "det", "and", "or"),
    }
)
"""Words that mean something in a formula, and so are neither units nor prose."""
_POWER = r"(?:\s*\^\s*(?:\{\s*([23])\s*\}|([23])))?"
_TEXT_UNIT = re.compile(r"\s*\\text\s*\{([^{}]*)\}" + _POWER + r"\s*$")
_WORD_UNIT = re.compile(r"(?<=[\d})!%])\s*([A-Za-z][A-Za-z]*(?:[ /\-][A-Za-z]+){0,4}\.?)" + _POWER + r"\s*$")
_DEGREES = re.compile(r"\s*\^\\circ\s*([CF])?\s*$")
_LEADING = re.compile(r"^([-+]?)\s*(\\dollar|US\$|\$|€|£|USD\s|\\text\s*\{\s*(?:\\dollar|\$|€|£)\s*\})\s*")
_BASE = re.compile(r"^\(?([0-9A-Z]+)\)?_\s*\{?\s*(\d{1,2}|\\text\s*\{[a-z]+\})\s*\}?$")


@dataclass(frozen=True, slots=True)
class Quantity:
    """value is exact. unit is "" for a bare number. unevaluated: a sum or product that was left standing.

    base: for a numeral written in another base, such as 11_2; `digits` then tells it, not `value`.
    """

    value: Fraction
    unit: str = ""
    unevaluated: bool = False
    base: str = ""
    digits: str = ""

    def same(self, other: Quantity, tolerance: float = 0.0) -> bool:
        """Equal in value (within tolerance * max(1, |value|)), and not in conflict about the unit."""
        if self.unit != other.unit and _known(self.unit) and _known(other.unit):
            return False
        if self.base or other.base:
            return self._same_digits(other)
        if tolerance:
            return abs(self.value - other.value) <= Fraction(tolerance) * max(Fraction(1), abs(self.value))
        return self.value == other.value

    def _same_digits(self, other: Quantity) -> bool:
        mine, yours = self.base or other.base, other.base or self.base
        return mine == yours and (self.digits or str(self.value)) == (other.digits or str(other.value))


def quantity(text: str) -> Quantity | None:
    """The number that a cleaned text stands for as a whole, or None. Raises TooLarge."""
    based = _BASE.match(text)
    if based and not (based[1].isalpha() and len(based[1]) == 1):
        digits = based[1].lstrip("0") or "0"
        value = Fraction(int(digits)) if digits.isdigit() and len(digits) < 400 else Fraction(0)
        return Quantity(value, base="" if based[2] == "10" else based[2], digits=digits)
    core, unit = split_unit(text)
    value_or_none = evaluate(core) if core else None
    if value_or_none is None and core:
        value_or_none = _grouped(core)
    if value_or_none is None:
        return None
    return Quantity(value_or_none.value, unit, value_or_none.unevaluated)


def _grouped(core: str) -> Value | None:
    joined = join_groups(core)
    return evaluate(joined) if joined != core else None


def split_unit(text: str) -> tuple[str, str]:
    """(what is left, normalised unit) of a cleaned text."""
    unit = ""
    leading = _LEADING.match(text)
    if leading:
        symbol = untext(leading[2]).strip()
        unit = "€" if "€" in symbol else "£" if "£" in symbol else "$"
        text = leading[1] + text[leading.end() :]
    for _ in range(4):
        text = text.rstrip()
        degrees = _DEGREES.search(text)
        worded = _TEXT_UNIT.search(text) or _WORD_UNIT.search(text)
        if degrees:
            text, unit = text[: degrees.start()], unit or "°" + (degrees[1] or "")
        elif text.endswith("%"):
            text, unit = text[:-1], unit or "%"
        elif text.endswith(("\\dollar", "$", "€", "£", "¢")):
            unit = unit or ("$" if text.endswith("\\dollar") else text[-1])
            text = text.removesuffix("\\dollar").rstrip("$€£¢")
        elif worded and _is_unit(worded):
            power = worded[2] or worded[3] or ""
            unit = normal_unit(worded[1], power) + (" " + unit if unit and unit not in "$%" else "") or unit
            text = text[: worded.start()]
        else:
            break
    return text.strip(), unit.strip()


def _is_unit(match: re.Match[str]) -> bool:
    if match[0].lstrip().startswith("\\text"):
        return True
    words = re.split(r"[ /\-]", match[1].rstrip(".").lower())
    return all(word in _BARE_UNITS or (len(word) >= 3 and word not in FUNCTIONS) or i for i, word in enumerate(words))


def normal_unit(words: str, power: str = "") -> str:
    """One name for a unit: square centimetres, cm^2 and sq. cm are all cm^2."""
    if re.fullmatch(r"\s*\(.*\)\s*", words):
        return ""  # a remark, such as (approximately)
    text = words.replace(".", "").strip().lower()
    text = re.sub(r"\s+", " ", text).replace("\\dollar", "$").replace("us $", "$")
    for prefix, exponent in (("square ", "2"), ("sq ", "2"), ("cubic ", "3"), ("cu ", "3")):
        if text.startswith(prefix):
            text, power = text[len(prefix) :], exponent
    text = re.sub(r"\s+(?:squared|cubed)$", lambda match: power_of(match[0]), text)
    if "^" in text:
        text, _, power = text.partition("^")
    name = _one(text)
    return name + "^" + power if power and name else name


def power_of(word: str) -> str:
    """The exponent that a word stands for."""
    return "^3" if "cubed" in word else "^2"


def _known(unit: str) -> bool:
    """True for a unit of the table, with or without an exponent; False for none and for nouns."""
    return bool(unit) and unit.partition("^")[0] in _SYNONYMS


def _one(text: str) -> str:
    for candidate in (text, text.replace(" ", "-")):
        for form in (candidate, candidate.removesuffix("s"), candidate.replace("s-per", "-per")):
            if form in _CANONICAL:
                return _CANONICAL[form]
            if form in _SYNONYMS and form:
                return form
    return text.removesuffix("s")
