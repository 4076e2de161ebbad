"""Which answers may reach a scorer that executes them.

Some scorers of reasoning-gym hand the model's text to eval() or to sympy's parser, which is eval() as well. They
run shut in, but code in an answer could still make its own score. So only texts that cannot do anything but be
read get there: Python literals, and formulas of numbers, variables and functions of mathematics.
"""

from __future__ import annotations

import ast
import re

MOST_CHARACTERS = 5_000

_NAMES = (
    "sin cos tan cot sec csc asin acos atan acot asec acsc sinh cosh tanh coth sech csch asinh acosh atanh acoth "
    "exp log ln sqrt cbrt root Abs sign erf erfi Si Ci Ei li gamma factorial floor ceiling Rational Integer Float "
    "pi E I oo C theta alpha beta lambda mu nu phi"
)
_FUNCTIONS = frozenset(_NAMES.split())
_FORMULA = re.compile(r"[\w\s+\-*/^().,=!]*", re.ASCII)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBER = re.compile(r"(?<![\w.])(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")


def is_harmless(kind: str, answer: str) -> bool:
    """Whether executing the answer as a "literal" or a "formula" can only read it."""
    if len(answer) > MOST_CHARACTERS:
        return False
    return _literal(answer) if kind == "literal" else _formula(answer)


def _literal(answer: str) -> bool:
    """A literal, or no Python at all: then eval() refuses it without running anything."""
    try:
        tree = ast.parse(answer.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return True
    allowed = (ast.Expression, ast.List, ast.Tuple, ast.Constant, ast.UnaryOp, ast.USub, ast.UAdd, ast.Load)
    return all(isinstance(node, allowed) for node in ast.walk(tree))


def _formula(answer: str) -> bool:
    """Numbers, operators, variables of one letter (and an index), and functions of mathematics; no attribute."""
    if not _FORMULA.fullmatch(answer):
        return False
    rest = _NUMBER.sub("0", answer)
    if "." in rest:
        return False
    return all(word in _FUNCTIONS or re.fullmatch(r"[A-Za-z]\d*", word) for word in _WORD.findall(rest))
