"""Recognise intervals, unions, inequalities, matrices and labels in a cleaned answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from atropos_verify.latex import bracketed, split_top

_RELATIONS = ("\\leq", "\\geq", "<", ">")
_VARIABLE = re.compile(r"[A-Za-z](?:_\{?\w+\}?)?|\\(?:theta|alpha|beta|lambda|mu|phi)")
_LABEL = re.compile(
    r"(?:\\(?:text)\s*\{[^{}]*\}|[A-Za-z](?:_\s*\{?\w+\}?)?'*|\\(?:theta|alpha|beta|gamma|lambda|mu|phi|angle|Delta|det)"
    r"|(?:\\angle|\\triangle)\s*[A-Z]{1,3}|[A-Za-z]{3,12}|[A-Z]{2}"
    r"|[A-Za-z](?:\^\{-1\})?'*\s*\([^()]{1,20}\)|\|[A-Za-z]{1,2}\||\([A-Za-z](?:\s*,\s*[A-Za-z]){1,3}\)"
    r"|\\(?:overline|vec|hat|bar|mathbf)\s*\{[A-Za-z]{1,3}\}|[A-Za-z]+(?: [A-Za-z]+){1,5})"
)
_MATRIX = re.compile(
    r"\\begin\s*\{(p|b|B|v|V|small)?(matrix|array)\}(?:\s*\{[lcr| ]*\})?(.*)\\end\s*\{\1?\2\}", re.DOTALL
)
_ROWS = re.compile(r"\\\\(?:\[[^\]]*\])?")


def label(text: str) -> bool:
    """True for what merely names a value: x, f(x), AB, (x,y), \\text{Area}, "the total cost"."""
    return _LABEL.fullmatch(text.strip()) is not None


def interval(text: str) -> tuple[str, list[str], str] | None:
    """(left bracket, members, right bracket) of a tuple or an interval of two members or more."""
    around = bracketed(text)
    if around is None or around[0] not in ("(", "[", "\\langle") or around[2] not in (")", "]", "\\rangle"):
        return None
    members = [part.strip() for part in split_top(around[1], (",", ";"))]
    if len(members) < 2 or not all(members):
        return None
    left, right = around[0].replace("\\langle", "("), around[2].replace("\\rangle", ")")
    return left, members, right


def union_parts(text: str) -> list[str]:
    """The parts of a union, or of alternatives that are inequalities; else the text alone."""
    parts = [part.strip() for part in split_top(text, ("\\cup",))]
    if len(parts) > 1:
        return parts
    separators = ("\\text{ or }", "\\text{or}", " or ", "\\lor", "\\vee", ",")
    alternatives = [part.strip() for part in split_top(text, separators)]
    if len(alternatives) > 1 and all(relation_kind(part) for part in alternatives):
        return alternatives
    return [text]


def relation_kind(text: str) -> bool:
    """True when an inequality sign is at the top level."""
    return len(split_top(text, _RELATIONS)) > 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """An interval. opening and closing are its brackets; variable is "" when it was written as an interval."""

    opening: str
    low: str
    high: str
    closing: str
    variable: str = ""


def to_interval(text: str) -> Bounds | None:
    """An interval, or an inequality in one variable that stands alone, as bounds."""
    around = interval(text)
    if around is not None:
        return Bounds(around[0], around[1][0], around[1][1], around[2]) if len(around[1]) == 2 else None
    parts = [part.strip() for part in split_top(text, _RELATIONS)]
    signs = re.findall(r"\\leq|\\geq|<|>", text)
    if len(signs) != len(parts) - 1 or not all(parts):
        return None
    if len(parts) == 3 and _VARIABLE.fullmatch(parts[1]) and _turned(signs[0]) == _turned(signs[1]):
        if _turned(signs[0]):
            parts, signs = parts[::-1], signs[::-1]
        closed = ["\\" in sign for sign in signs]
        return Bounds("[" if closed[0] else "(", parts[0], parts[2], "]" if closed[1] else ")", parts[1])
    if len(parts) == 2:
        if _VARIABLE.fullmatch(parts[1]):
            parts, turned = parts[::-1], not _turned(signs[0])
        elif _VARIABLE.fullmatch(parts[0]):
            turned = _turned(signs[0])
        else:
            return None
        closed_end = "\\" in signs[0]
        if turned:
            return Bounds("[" if closed_end else "(", parts[1], "\\infty", ")", parts[0])
        return Bounds("(", "-\\infty", parts[1], "]" if closed_end else ")", parts[0])
    return None


def _turned(sign: str) -> bool:
    return sign in (">", "\\geq")


def matrix_rows(text: str) -> list[list[str]] | None:
    """The cells of a matrix, whatever its brackets; a determinant (vmatrix) is not a matrix."""
    inner = text
    around = bracketed(text)
    if around is not None and "\\begin" in around[1]:
        inner = around[1]
    match = _MATRIX.fullmatch(inner.strip())
    if match is None or match[1] in ("v", "V") or "\\begin" in match[3]:
        return None
    rows = [[cell.strip() for cell in row.split("&")] for row in _ROWS.split(match[3])]
    return [row for row in rows if row != [""]] or None
