"""What may be evaluated in a worker: expressions that can do nothing but be read. Everything else is refused.

Libraries hand a model's text to eval() and exec(): scorers, and sympy, whose parser is eval() as well. Code in
such a text would run in the process that computes the verdict and could write one. So nothing is guessed from
the text beforehand: `watch` looks at the compiled code itself, in the process and at the moment that would run
it. What is refused raises Refused there, and `reasons` holds why.

Loaded by path, inside workers and in processes of plugins' own; it imports nothing of the rest of the package.
"""

from __future__ import annotations

import dis
import functools
import os
import re
import sys
import sysconfig
import types
from typing import Any

# What sympy's parser writes, functions and constants of mathematics, and built-ins that compute with numbers.
_WORDS = (
    "Integer Float Number Rational Symbol Function Mul Add Pow Abs sign sqrt cbrt root exp log ln log2 log10 "
    "sin cos tan cot sec csc asin acos atan atan2 acot asec acsc sinh cosh tanh coth sech csch asinh acosh atanh "
    "acoth erf erfi Si Ci Ei li gamma factorial binomial floor ceiling ceil gcd lcm comb perm Max Min Mod "
    "pi inf nan oo alpha beta theta mu nu phi True False None "
    "abs min max round pow int float complex sum divmod"
)
_NAMES = frozenset(_WORDS.split())
_VARIABLE = re.compile(r"[A-Za-z]\d*")

# Names as in Python 3.11 to 3.14. A name that is not here is refused.
_HARMLESS = (
    "RESUME NOP CACHE EXTENDED_ARG NOT_TAKEN LOAD_CONST LOAD_SMALL_INT LOAD_NAME PUSH_NULL POP_TOP COPY SWAP "
    "UNARY_POSITIVE UNARY_NEGATIVE UNARY_NOT UNARY_INVERT TO_BOOL BINARY_OP BINARY_SUBSCR BINARY_SLICE "
    "BUILD_SLICE COMPARE_OP IS_OP CONTAINS_OP BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP BUILD_CONST_KEY_MAP "
    "LIST_EXTEND LIST_APPEND LIST_TO_TUPLE SET_UPDATE SET_ADD MAP_ADD DICT_UPDATE PRECALL CALL CALL_KW KW_NAMES "
    "JUMP_FORWARD JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE "
    "POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_IF_NONE "
    "POP_JUMP_IF_NOT_NONE RETURN_VALUE RETURN_CONST"
)
_STEPS = frozenset(_HARMLESS.split())
_CALLS = ("PRECALL", "CALL", "CALL_KW")
_INTRINSICS = (5, 6)
"""Of CALL_INTRINSIC_1 (3.12 and later): unary plus, and a list to a tuple."""

_STANDARD = os.path.realpath(sysconfig.get_path("stdlib"))
_GENERATORS = (
    # These write code of their own, out of names that they have checked and of numbers.
    *(os.path.join(_STANDARD, *parts) for parts in (("dataclasses.py",), ("collections", "__init__.py"))),  # noqa: PTH118
    os.path.join("sympy", "polys", "monomials.py"),  # noqa: PTH118
)
_IMPORTS = "<frozen importlib._bootstrap>"

_PREPARES = compile("from sympy import *", "<string>", "exec")
"""What sympy's parser runs before each text, to have names for it."""

reasons: list[str] = []
"""Why texts were refused in this process, in order."""


class Refused(ValueError):
    """The text was not evaluated: it could do more than be read. Scorers catch ValueError for bad values."""


def watch(work: str | None = None) -> None:
    """From now on, and for good, this process evaluates nothing but harmless expressions.

    work: a folder that it may write to. Modules in there were not there before.
    """
    sys.addaudithook(functools.partial(_hear, work))


def why_not(code: types.CodeType) -> str | None:
    """Why compiled code may not be evaluated; None when all it does is name, compute and build plain values.

    Calls are calls of the functions named above; no attribute, no assignment, no function, no loop.
    """
    if code == _PREPARES:
        return None
    for name in code.co_names:
        if name not in _NAMES and not _VARIABLE.fullmatch(name):
            return f"it uses the name {name[:40]!r}"
    for step in dis.get_instructions(code):
        if step.opname == "CALL_INTRINSIC_1" and step.arg in _INTRINSICS:
            continue
        if step.opname not in _STEPS:
            return f"it is more than an expression of numbers ({step.opname})"
    if any(isinstance(constant, types.CodeType) for constant in code.co_consts):
        return "it defines a function"
    return None


def _hear(work: str | None, event: str, arguments: tuple[Any, ...]) -> None:
    if event != "exec":
        return
    caller = sys._getframe(1)
    code = arguments[0]
    if _is_a_librarys(code, caller, work):
        return
    reason = why_not(code) or _reads_the_scorer(code, caller) if isinstance(code, types.CodeType) else "it is not code"
    if reason is not None:
        reasons.append(reason)
        raise Refused(f"this text is not evaluated: {reason}")


def _reads_the_scorer(code: types.CodeType, caller: types.FrameType) -> str | None:
    """Why code evaluated without names of its own may not be: `eval(text)` reads the scorer's variables.

    A text that names one could be compared with itself.
    """
    step, given = caller.f_code.co_code[caller.f_lasti : caller.f_lasti + 2]
    if dis.opname[step] in _CALLS and given > 1:
        return None
    for name in code.co_names:
        if name in caller.f_locals or (_VARIABLE.fullmatch(name) and name in caller.f_globals):
            return f"{name!r} is a variable of the scorer"
    return None


def _is_a_librarys(code: object, caller: types.FrameType, work: str | None) -> bool:
    """Whether the code was there before: a module that is being imported, or the work of a generator of code."""
    if caller.f_code.co_filename.endswith(_GENERATORS):
        return True
    if work is not None and isinstance(code, types.CodeType) and code.co_filename.startswith(work):
        return False
    frame: types.FrameType | None = caller
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTS:
            return True
        frame = frame.f_back
    return False
