"""Exact values of numbers and plain arithmetic written in LaTeX or text, with bounded cost.

    evaluate(r"\\frac{3}{4}").value == Fraction(3, 4)
    evaluate("9^{9^{9}}")  raises TooLarge
    evaluate("x+1")        is None: not arithmetic

Rationals only: whole and decimal numbers, thousands separators, e-notation, fractions, mixed numbers,
powers with whole exponents, factorials, binomials and the four operations.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

MAX_BITS = 40_000
MAX_DIGITS = 1_000
MAX_EXPONENT = 10_000
_MAX_TOKENS = 400
_MAX_DEPTH = 40

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)"
    r"|(?P<op>\\(?:frac|binom|cdot|times|ast|div)(?![A-Za-z])|[-+*/^!(){}]))"
)
_SPACE = re.compile(r"\s*$")
_TIMES = {"\\cdot": "*", "\\times": "*", "\\ast": "*", "\\div": "/"}


class TooLarge(Exception):
    """The value has too many digits to be worked out; it equals no number that people write down."""


class _NotArithmetic(Exception):
    """The text holds something else than arithmetic on rational numbers."""


@dataclass(frozen=True, slots=True)
class Value:
    """An exact value. ops: what was used: add, mul, pow, fact; none of them for a plain number.

    A fraction, a mixed number, a sign, and a times power of ten (scientific notation) are plain.
    """

    value: Fraction
    ops: frozenset[str] = frozenset()

    @property
    def plain(self) -> bool:
        return not self.ops

    @property
    def unevaluated(self) -> bool:
        """True for sums, differences, products and quotients that were left standing."""
        return bool(self.ops & {"add", "mul"})


def evaluate(text: str) -> Value | None:
    """The exact value, or None when the text is not arithmetic. Raises TooLarge."""
    tokens: list[str] = []
    pos = 0
    while match := _TOKEN.match(text, pos):
        tokens.append(match["number"] or _TIMES.get(match["op"], match["op"]))
        pos = match.end()
        if len(tokens) > _MAX_TOKENS:
            return None
    if not tokens or not _SPACE.match(text, pos):
        return None
    parser = _Parser(tokens)
    try:
        value = parser.sum(0)
        if parser.pos != len(tokens):
            return None
    except (_NotArithmetic, ZeroDivisionError):
        return None
    return Value(value, frozenset(parser.ops))


def number(text: str) -> Fraction | None:
    """The value of one number part, such as 1,000.50 or 1e2; None when it is absurdly long."""
    mantissa, _, exponent = text.lower().replace(",", "").partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent) > 4 or (exponent and abs(int(exponent)) > MAX_DIGITS):
        return None
    return Fraction(mantissa) * Fraction(10) ** int(exponent or 0)


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise TooLarge
    return value


class _Parser:
    """Recursive descent over the tokens; the depth and every value are bounded."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.pos = 0
        self.ops: set[str] = set()

    def peek(self) -> str:
        return self.tokens[self.pos] if self.pos < len(self.tokens) else ""

    def expect(self, part: str) -> None:
        if self.peek() != part:
            raise _NotArithmetic
        self.pos += 1

    def sum(self, depth: int) -> Fraction:
        if depth > _MAX_DEPTH:
            raise _NotArithmetic
        value = self.product(depth)
        while self.peek() in ("+", "-"):
            sign = 1 if self.tokens[self.pos] == "+" else -1
            self.pos += 1
            value = _bounded(value + sign * self.product(depth))
            self.ops.add("add")
        return value

    def product(self, depth: int) -> Fraction:
        begin = self.pos
        value = self.signed(depth)
        while part := self.peek():
            if part in ("*", "/"):
                self.pos += 1
                value = self.multiply(value, part, begin, depth)
            elif part == "\\frac" and self.tokens[self.pos - 1][-1].isdigit() and value.denominator == 1:
                value = self.mixed(value, self.signed(depth))
            elif part[0].isdigit() and self.is_mixed(value):
                top, bottom = number(part), number(self.tokens[self.pos + 2])
                self.pos += 3
                if top is None or bottom is None:
                    raise _NotArithmetic
                value = self.mixed(value, top / bottom)
            elif part in ("(", "\\frac", "\\binom"):
                self.ops.add("mul")
                value = _bounded(value * self.power(depth))
            else:
                break
        return value

    def multiply(self, left: Fraction, operator: str, begin: int, depth: int) -> Fraction:
        start, before = self.pos, set(self.ops)
        right = self.signed(depth)
        if operator == "/":
            plain = start - begin <= 3 and self.pos - start <= 2 and left.denominator == right.denominator == 1
            if not plain:
                self.ops.add("mul")
            return _bounded(left / right)
        if self.tokens[start : start + 2] == ["10", "^"] and self.peek() not in ("*", "/"):
            self.ops.clear()
            self.ops.update(before)  # a times a power of ten is scientific notation
        else:
            self.ops.add("mul")
        return _bounded(left * right)

    def is_mixed(self, value: Fraction) -> bool:
        """2 3/4: a whole number, then a fraction of whole numbers."""
        rest = self.tokens[self.pos : self.pos + 3]
        before = self.tokens[self.pos - 1]
        return before.isdigit() and value.denominator == 1 and len(rest) == 3 and rest[1] == "/" and rest[2].isdigit()

    def mixed(self, whole: Fraction, part: Fraction) -> Fraction:
        if part < 0:
            raise _NotArithmetic
        return _bounded(whole + part if whole >= 0 else whole - part)

    def signed(self, depth: int) -> Fraction:
        if self.peek() in ("+", "-"):
            sign = -1 if self.tokens[self.pos] == "-" else 1
            self.pos += 1
            if depth > _MAX_DEPTH:
                raise _NotArithmetic
            return sign * self.signed(depth + 1)
        return self.power(depth)

    def power(self, depth: int) -> Fraction:
        value = self.atom(depth)
        if self.peek() == "!":
            self.pos += 1
            value = self.factorial(value)
            if self.peek() == "!":
                raise _NotArithmetic  # a double factorial is something else
        if self.peek() != "^":
            return value
        self.pos += 1
        self.ops.add("pow")
        negative = self.peek() == "-"
        self.pos += negative
        exponent = self.group(depth) if self.peek() == "{" else self.power(depth + 1)
        return _power(value, -exponent if negative else exponent)

    def atom(self, depth: int) -> Fraction:
        part = self.peek()
        if part == "(":
            self.pos += 1
            value = self.sum(depth + 1)
            self.expect(")")
            return value
        if part == "{":
            return self.group(depth)
        if part in ("\\frac", "\\binom"):
            self.pos += 1
            top, bottom = self.group(depth), self.group(depth)
            return _bounded(top / bottom) if part == "\\frac" else self.binomial(top, bottom)
        if part and (part[0].isdigit() or part[0] == "."):
            self.pos += 1
            value_or_none = number(part)
            if value_or_none is None:
                raise TooLarge
            return value_or_none
        raise _NotArithmetic

    def group(self, depth: int) -> Fraction:
        self.expect("{")
        value = self.sum(depth + 1)
        self.expect("}")
        return value

    def factorial(self, value: Fraction) -> Fraction:
        self.ops.add("fact")
        if value.denominator != 1 or value < 0:
            raise _NotArithmetic
        if value > MAX_EXPONENT // 2:
            raise TooLarge
        return _bounded(Fraction(math.factorial(int(value))))

    def binomial(self, top: Fraction, bottom: Fraction) -> Fraction:
        self.ops.add("fact")
        if top.denominator != 1 or bottom.denominator != 1 or min(top, bottom) < 0:
            raise _NotArithmetic
        if top > MAX_EXPONENT:
            raise TooLarge
        return _bounded(Fraction(math.comb(int(top), int(bottom))))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or (base == 0 and exponent < 0):
        raise _NotArithmetic
    if base in (0, 1) or exponent == 0:
        return Fraction(1) if exponent == 0 else base
    if base == -1:
        return Fraction(-1 if exponent % 2 else 1)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) > MAX_EXPONENT or bits * abs(exponent) > MAX_BITS:
        raise TooLarge
    return _bounded(Fraction(base ** int(exponent)))
