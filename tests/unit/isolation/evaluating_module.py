"""A worker module for the tests: hands the text of a request to what libraries use to evaluate it."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

SECRET = [31, 41]
k1 = [26, 5]


def load(settings: dict[str, Any]) -> None:
    if settings.get("sympy"):
        import sympy  # noqa: F401


def answer(request: dict[str, Any]) -> Any:
    """The verdict of a scorer: whether the text has the wanted value. What fails is wrong, as in many scorers."""
    expected = [26, 5]
    try:
        return globals()["by_" + request["by"]](request["text"]) == expected
    except Exception:
        return False


def by_eval(text: str) -> Any:
    return eval(text)


def by_scorers_names(text: str) -> Any:
    """As scorers do: the text sees their variables, and those of their file."""
    n, root = [26, 5], [26, 5]
    found = [eval(text), *map(eval, [text])]
    return found[0] if found[1] == n == root else None


def by_own_names(text: str) -> Any:
    n = [26]
    return [*eval(text, {"n": n, "max": max}), 5] if n else None


def by_empty_eval(text: str) -> Any:
    return eval(text, {"__builtins__": {}}, {})


def by_exec(text: str) -> Any:
    names: dict[str, Any] = {}
    exec(text, names)
    return names.get("value")


def by_compile(text: str) -> Any:
    return eval(compile(ast.parse(text, mode="eval"), "answer.py", "eval"))


def by_literal(text: str) -> Any:
    return ast.literal_eval(text)


def by_sympy(text: str) -> Any:
    from sympy.parsing.sympy_parser import parse_expr

    return [int(parse_expr(text)), 5]


def by_import(text: str) -> Any:
    import sys

    folder = os.environ["HOME"]
    (Path(folder) / "reply.py").write_text(text)
    sys.path.insert(0, folder)
    import reply  # type: ignore[import-not-found]

    return reply.value


def by_named_tuple(text: str) -> Any:
    """Code that the library itself writes."""
    import collections
    import dataclasses

    kind = collections.namedtuple("kind", text.split())
    made = dataclasses.make_dataclass("made", text.split())
    return [len(kind._fields) + 24, len(dataclasses.fields(made)) + 3]
