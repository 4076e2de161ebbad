"""Which answers may reach a scorer that executes them.

Some scorers of reasoning-gym hand the model's text to eval() or to sympy's parser, which is eval() as well.
They get only what was read here from end to end: lists of values, rows of words, arithmetic with whole
numbers, and formulas of numbers, variables and functions of mathematics. Reading here is no use of Python's
parser, so no text breaks it. What cannot be read is refused, and so is what the worker that holds the scorers
meets in spite of it (its guard looks at the compiled code).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_CHARACTERS = 5_000
MOST_NESTED = 40
"""Brackets within brackets, signs in a row, and powers of powers."""

_NAMES = (
    "sin cos tan cot sec csc asin acos atan acot asec acsc sinh cosh tanh coth sech csch asinh acosh atanh acoth "
    "exp log ln sqrt cbrt root Abs sign erf erfi Si Ci Ei li gamma factorial floor ceiling Rational Integer Float"
)
_FUNCTIONS = frozenset(_NAMES.split())
_CONSTANTS = frozenset(("pi", "E", "I", "oo", "C", "theta", "alpha", "beta", "mu", "nu", "phi"))
_VARIABLE = re.compile(r"[A-Za-z]\d*", re.ASCII)
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w))|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<string>\"[^\"\\\n]*\"|'[^'\\\n]*')|(?P<sign>\*\*|//|[-+*/%^(),!\[\]]))",
    re.ASCII,
)
_GAP = re.compile(r"[\s,;|]+")
_CELL = re.compile(r"[-+]?\d+(?:\.\d+)?|\w+", re.ASCII)
_BETWEEN = frozenset(("+", "-", "*", "/", "//", "%", "^", "**"))


class _Unreadable(Exception):
    """Where the text is no formula or no list."""


@dataclass(slots=True)
class _Reader:
    """The tokens of a text, as (kind, text), and how far they were read."""

    tokens: list[tuple[str, str]]
    place: int = 0
    powers: int = 0

    def next(self) -> tuple[str, str]:
        return self.tokens[self.place] if self.place < len(self.tokens) else ("end", "the end")

    def take(self, *signs: str) -> bool:
        """Whether one of these comes next; then it was read."""
        found = self.next()[0] == "sign" and self.next()[1] in signs
        self.place += found
        return found

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise _Unreadable(f"{self.next()[1][:20]!r} where {sign!r} is due")

    def signs(self, depth: int) -> int:
        while self.take("-", "+"):
            depth += 1
        if depth > MOST_NESTED:
            raise _Unreadable("it is nested too deeply")
        return depth

    def value(self, depth: int = 0) -> None:
        """A number, a text, or a list or tuple of values."""
        depth = self.signs(depth)
        if self.take("[", "("):
            close = "]" if self.tokens[self.place - 1][1] == "[" else ")"
            while not self.take(close):
                self.value(depth + 1)
                if not self.take(","):
                    self.expect(close)
                    break
        elif self.next()[0] in ("number", "string"):
            self.place += 1
        else:
            raise _Unreadable(f"{self.next()[1][:20]!r} where a value is due")

    def formula(self, depth: int = 0) -> None:
        """Operands and what stands between them."""
        self.operand(depth)
        while self.take(*_BETWEEN):
            self.powers += self.tokens[self.place - 1][1] == "**"
            self.operand(depth + self.powers)

    def operand(self, depth: int) -> None:
        depth = self.signs(depth)
        kind, text = self.next()
        self.place += 1
        if kind == "name" and text in _FUNCTIONS:
            self.expect("(")
            self.formula(depth + 1)
            while self.take(","):
                self.formula(depth + 1)
            self.expect(")")
        elif (kind, text) == ("sign", "("):
            self.formula(depth + 1)
            self.expect(")")
        elif kind == "name" and text not in _CONSTANTS and not _VARIABLE.fullmatch(text):
            raise _Unreadable(f"the name {text[:20]!r} is none of mathematics")
        elif kind not in ("name", "number"):
            raise _Unreadable(f"{text[:20]!r} where a number or a variable is due")
        while self.take("!"):
            pass


def why_refused(kind: str, answer: str) -> str | None:
    """Why an answer must not be executed as a "literal", "formula" or "arithmetic"; None when it was read in full."""
    if len(answer) > MOST_CHARACTERS:
        return f"it is longer than {MOST_CHARACTERS} characters"
    cells = _GAP.split(answer.strip(" \n\t,;|"))
    if kind == "literal" and len(cells) > 1 and all(_CELL.fullmatch(cell) for cell in cells):
        return None
    tokens: list[tuple[str, str]] = []
    place, end = 0, len(answer.rstrip())
    while place < end:
        found = _TOKEN.match(answer, place)
        if found is None:
            return f"{answer[place : place + 20]!r} cannot be read"
        tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
        if kind == "arithmetic" and tokens[-1][0] != "sign" and not tokens[-1][1].isdigit():
            return f"{tokens[-1][1][:20]!r} where a whole number is due"
        place = found.end()
    reader = _Reader(tokens)
    try:
        if kind == "literal":
            reader.value()
        else:
            reader.formula()
    except _Unreadable as error:
        return str(error)
    return None if reader.place == len(tokens) else f"{reader.next()[1][:20]!r} is out of place"
