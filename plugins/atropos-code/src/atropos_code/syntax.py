"""What a piece of text is as Python: whether it is a program, what it defines and what it needs."""

from __future__ import annotations

import ast
import builtins
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_LONGEST = 1_000_000  # characters that are parsed
_BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__", "__annotations__"}
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)

NONE, STUB, WEAK, FULL = 0, 1, 2, 3
"""How well a text defines a name: not, by its head alone, inside something else, as a program does."""


@lru_cache(maxsize=256)
def parsed(code: str) -> ast.Module | None:
    """The syntax tree; None for what Python cannot read."""
    if len(code) > _LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def first_error(code: str) -> int | None:
    """The line of the first syntax error, the first line where none is given; None when Python can read it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except SyntaxError as error:
        return error.lineno or 1
    except (ValueError, RecursionError, MemoryError):
        return 1
    return None


def is_program(code: str) -> bool:
    """Is there a statement? Comments, a docstring and other constants alone do nothing. Broken code counts as one."""
    tree = parsed(code)
    if tree is None:
        return any(line.strip() and not line.strip().startswith("#") for line in code.splitlines())
    return any(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in tree.body)


def does_something(code: str) -> bool:
    """Can Python read it, and is it more than values, as output is: 4, [1, 2], True, hello?"""
    tree = parsed(code)
    if tree is None:
        return False
    return any(not isinstance(node, ast.Expr) or _acts(node.value) for node in tree.body)


def _acts(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Call | ast.Await | ast.Yield | ast.NamedExpr) for node in ast.walk(value))


def strength(code: str, name: str) -> int:
    """How well a text defines the name: NONE, STUB, WEAK or FULL."""
    tree = parsed(code)
    if tree is None:
        return _strength_of_broken(code, name)
    best = NONE
    for node in _top_level(tree.body):
        best = max(best, _defines(node, name))
    if best == NONE and re.search(rf"\b{re.escape(name)}\b", code):
        inner = any(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name
            for node in ast.walk(tree)
        )
        best = WEAK if inner else NONE
    return best


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of the module, also those under if, try, with and loops."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _top_level(getattr(node, part, []))
        for handler in getattr(node, "handlers", []):
            yield from _top_level(handler.body)


def _defines(node: ast.stmt, name: str) -> int:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        if node.name != name:
            return NONE
        return STUB if all(map(_is_nothing, node.body)) and not isinstance(node, ast.ClassDef) else FULL
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value = node.value
        if value is None or not any(isinstance(n, ast.Name) and n.id == name for t in targets for n in ast.walk(t)):
            return NONE
        return FULL
    if isinstance(node, ast.Import | ast.ImportFrom):
        module = node.module if isinstance(node, ast.ImportFrom) else None
        names = {alias.asname or alias.name for alias in node.names}
        known = (module or "").partition(".")[0] in sys.stdlib_module_names
        return WEAK if name in names and known else NONE
    return NONE


def _is_nothing(node: ast.stmt) -> bool:
    """A docstring, `...`, `pass`, or an error that says that it is not there."""
    if isinstance(node, ast.Raise):
        return "NotImplementedError" in ast.dump(node)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _strength_of_broken(code: str, name: str) -> int:
    head = re.compile(rf"^([ \t]*)(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(name)}\b", re.MULTILINE)
    if re.search(rf"^{re.escape(name)}[ \t]*(?::[^=\n]*)?=[^=]", code, re.MULTILINE):
        return FULL
    best = NONE
    for match in head.finditer(code):
        lines = code[match.end() :].split("\n")[1:]
        body = [line.strip() for line in _indented(lines, len(match[1]))]
        real = any(line and not line.startswith(("#", "...", '"""', "'''", "pass")) for line in body)
        best = max(best, (FULL if not match[1] else WEAK) if real else STUB)
    return best


def _indented(lines: list[str], width: int) -> Iterator[str]:
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= width:
            return
        yield line


@dataclass(frozen=True, slots=True)
class Names:
    """read: names that are read, built-in ones aside. bound: bound anywhere. at_top: bound by the module."""

    read: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()
    at_top: frozenset[str] = frozenset()


def names_of(code: str) -> Names:
    """What a text needs from elsewhere, and what it gives to others."""
    tree = parsed(code)
    if tree is None:
        return Names()
    read: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.MatchMapping):
            bound.add(node.rest or "")
        elif isinstance(node, _NAMED):
            bound.add(node.name or "")
    if "*" in bound:  # nobody knows what that brings
        read = set()
    return Names(frozenset(read - bound - _BUILTINS), frozenset(bound), frozenset(_at_top(tree)))


def _at_top(tree: ast.Module) -> Iterator[str]:
    for node in _top_level(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        else:
            yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def without_words(code: str) -> str:
    """The code without bare words between its statements: prose that Python happens to read as names."""
    tree = parsed(code)
    body = tree.body if tree is not None else []
    words = [node for node in body if isinstance(node, ast.Expr) and not _acts(node.value)]
    if not words:
        return code
    lines = code.split("\n")
    for node in words:
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        lines[first:last] = [""] * (last - first)
    return "\n".join(lines).strip("\n") + "\n"
