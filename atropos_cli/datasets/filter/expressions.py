"""A small safe language over the fields of a rollout: `score >= 0.5 and env == 'math' and len(text) < 2000`.

Python's grammar for comparisons, and/or/not, arithmetic, `in`, `x if y else z`, subscripts and a few
functions; nothing is executed that is not listed here. The text is parsed once into closures, so a
record costs microseconds.

A field that is not there is None. Comparing None with <, <=, >, >= is false, so `score >= 0.5` is
false without a score. Other mismatches (text < number) are errors, told with the record's place.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from atropos_cli.datasets.filter.fieldpaths import paths_that_may_miss
from atropos_cli.datasets.filter.presence import Presence
from atropos_cli.errors import UsageError
from atropos_cli.io.records import Record, StoredRollout, text_of
from atropos_cli.text.words import words
from atropos_cli.timelimit import LIMIT, OverTime, time_limit

LONGEST = 4000
_TOO_LONG = 1_000_000  # characters of a text made by +

Value = Any
Compiled = Callable[["Scope"], Value]


class ExpressionError(Exception):
    """An expression met values it cannot work with."""


class Scope:
    """A rollout and its record, as the names of the language see them."""

    __slots__ = ("record", "rollout")

    def __init__(self, record: Record, rollout: StoredRollout) -> None:
        self.record = record
        self.rollout = rollout


def _known(scores: list[float | None]) -> list[float]:
    return [score for score in scores if score is not None]


def _mean(scores: list[float | None]) -> float | None:
    known = _known(scores)
    return sum(known) / len(known) if known else None


def _spread(scores: list[float | None]) -> float | None:
    known = _known(scores)
    return max(known) - min(known) if known else None


FIELDS: dict[str, tuple[str, Callable[[Scope], Value]]] = {
    "score": ("the rollout's score", lambda s: s.rollout.score),
    "rewards": ("values of each reward by name", lambda s: s.rollout.rewards),
    "env": ("environment", lambda s: s.record.env),
    "task": ("task id", lambda s: s.record.task_id),
    "task_name": ("name of the kind of task", lambda s: s.record.task_name),
    "id": ("group or row id", lambda s: s.record.id),
    "model": ("model", lambda s: s.record.model),
    "seed": ("seed", lambda s: s.record.seed),
    "turn": ("turn of the episode", lambda s: s.record.turn),
    "episode": ("episode id", lambda s: s.record.episode_id),
    "answer": ("gold answer", lambda s: s.record.answer),
    "info": ("the task's other fields", lambda s: s.record.info),
    "raw": ("the source object", lambda s: s.rollout.raw),
    "index": ("place in the group, from 0", lambda s: s.rollout.index),
    "text": ("content of the last assistant message", lambda s: s.rollout.text),
    "completion": ("content of all assistant messages", lambda s: s.rollout.completion_text),
    "prompt": ("text of the prompt's messages", lambda s: "\n\n".join(map(text_of, s.rollout.prompt))),
    "reasoning": ("reasoning of the last assistant message", lambda s: (s.rollout.reply or {}).get("reasoning")),
    "chars": ("characters of the completion", lambda s: len(s.rollout.completion_text)),
    "words": ("words of the completion", lambda s: len(words(s.rollout.completion_text))),
    "tokens": ("sampled tokens, where stored", lambda s: s.rollout.completion_tokens),
    "turns": ("assistant messages of the completion", lambda s: _turns(s.rollout)),
    "tool_calls": ("tool calls of the completion", lambda s: _tool_calls(s.rollout)),
    "finish_reason": ("of the last reply, in OpenAI's words", lambda s: s.rollout.finish_reason),
    "stop_reason": ("why the rollout ended", lambda s: s.rollout.stop_reason),
    "truncated": ("was it cut off?", lambda s: s.rollout.truncated),
    "failed": ("did it fail?", lambda s: s.rollout.failure is not None),
    "label": ("chosen or rejected", lambda s: s.rollout.label),
    "group_size": ("rollouts in the group", lambda s: len(s.record.rollouts)),
    "group_mean": ("mean score of the group", lambda s: _mean(s.record.scores)),
    "group_max": ("best score of the group", lambda s: max(_known(s.record.scores), default=None)),
    "group_min": ("worst score of the group", lambda s: min(_known(s.record.scores), default=None)),
    "group_spread": ("best minus worst score", lambda s: _spread(s.record.scores)),
}
"""Names of the language: (meaning, how to get the value)."""


def _turns(rollout: StoredRollout) -> int:
    return sum(message["role"] == "assistant" for message in rollout.completion)


def _tool_calls(rollout: StoredRollout) -> int:
    return sum(len(message.get("tool_calls") or ()) for message in rollout.completion)


def _length(value: Value) -> int:
    return 0 if value is None else len(value)


def searcher(pattern: str) -> Callable[[str], bool]:
    """Is the pattern found anywhere in a text? Raises re.error; the search itself, UsageError after LIMIT seconds."""
    compiled = re.compile(pattern)

    def search(text: str) -> bool:
        try:
            with time_limit():
                return compiled.search(text) is not None
        except OverTime as error:
            raise UsageError(
                f"the regular expression {pattern!r} took longer than {LIMIT:g} s on a text of {len(text)} characters",
                hint="repetitions within repetitions, as in (a+)+, or several in a row, as in .*.*, can take for ever",
            ) from error

    return search


def _search(pattern: str, text: str | None) -> bool:
    return text is not None and searcher(pattern)(text)


def _with(method: str) -> Callable[..., Value]:
    return lambda text, *args: None if text is None else getattr(text, method)(*args)


FUNCTIONS: dict[str, tuple[str, int, int, Callable[..., Value]]] = {
    "len": ("length of text or a list", 1, 1, _length),
    "lower": ("text in lower case", 1, 1, _with("lower")),
    "upper": ("text in upper case", 1, 1, _with("upper")),
    "strip": ("text without white space around it", 1, 1, _with("strip")),
    "startswith": ("startswith(text, 'x')", 2, 2, _with("startswith")),
    "endswith": ("endswith(text, 'x')", 2, 2, _with("endswith")),
    "count": ("count(text, 'x')", 2, 2, _with("count")),
    "match": ("match('regex', text): is it found anywhere?", 2, 2, _search),
    "abs": ("absolute value", 1, 1, abs),
    "round": ("round(number, digits)", 1, 2, round),
    "min": ("smallest", 1, 9, min),
    "max": ("largest", 1, 9, max),
    "float": ("a number from text", 1, 1, float),
    "str": ("text of a number", 1, 1, str),
}
"""Functions: (meaning, fewest arguments, most arguments, function)."""

_COMPARE: dict[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
}
_ORDERING = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ARITHMETIC: dict[type[ast.operator], Callable[[Value, Value], Value]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}
_FAILURES = (TypeError, ValueError, KeyError, IndexError, ArithmeticError, AttributeError, re.error)


class Expression:
    """A parsed expression. Raises UsageError when the text is not one."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > LONGEST:
            raise UsageError(f"the expression has {len(text)} characters, at most {LONGEST} are allowed")
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            where = f" at column {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise UsageError(f"expression {text!r}: {reason}{where}", hint=_EXAMPLE) from error
        try:
            self._run = _compile(tree.body)
            self._paths = [
                (ast.unparse(path), _compile(path), _compile(path.value) if hasattr(path, "value") else None)
                for path in paths_that_may_miss(tree.body)
                if not isinstance(path, ast.Name) or path.id in FIELDS
            ]
        except RecursionError as error:
            raise UsageError(f"expression {text[:60]!r}... is nested too deeply") from error

    def __call__(self, record: Record, rollout: StoredRollout) -> Value:
        """The value for a rollout. Raises ExpressionError for values that do not fit."""
        try:
            return self._run(Scope(record, rollout))
        except _FAILURES as error:
            raise ExpressionError(f"{self.text!r}: {error}") from error

    def look(self, record: Record, rollout: StoredRollout, presence: Presence) -> None:
        """Count which of the fields that the expression reads the rollout has."""
        scope = Scope(record, rollout)
        for name, value, parent in self._paths:
            try:
                there, holder = value(scope) is not None, parent(scope) if parent is not None else None
            except _FAILURES:
                continue  # told when the expression itself is worked out
            known = holder if isinstance(holder, dict) and not there else ()
            presence.see(f"--where {self.text!r}", name, there=there, known=known)


_EXAMPLE = "for example: score >= 0.5 and env == 'math' and len(text) < 2000"


def _compile(node: ast.expr) -> Compiled:
    handler = _HANDLERS.get(type(node))
    if handler is None:
        raise UsageError(f"{ast.unparse(node)!r} is not allowed in an expression", hint=_EXAMPLE)
    return handler(node)


def _constant(node: ast.Constant) -> Compiled:
    value = node.value
    if not isinstance(value, str | int | float | bool | None):
        raise UsageError(f"{ast.unparse(node)!r} is not allowed in an expression")
    return lambda scope: value


def _name(node: ast.Name) -> Compiled:
    if node.id in FIELDS:
        return FIELDS[node.id][1]
    words = {"true": True, "false": False, "null": None, "none": None}
    if node.id in words:
        value = words[node.id]
        return lambda scope: value
    close = get_close_matches(node.id, FIELDS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"fields: {', '.join(FIELDS)}"
    raise UsageError(f"expression: there is no field {node.id!r}", hint=hint)


def _boolean(node: ast.BoolOp) -> Compiled:
    parts = [_compile(value) for value in node.values]
    if isinstance(node.op, ast.And):
        return lambda scope: all(part(scope) for part in parts)
    return lambda scope: any(part(scope) for part in parts)


def _unary(node: ast.UnaryOp) -> Compiled:
    inner = _compile(node.operand)
    if isinstance(node.op, ast.Not):
        return lambda scope: not inner(scope)
    if isinstance(node.op, ast.USub):
        return lambda scope: -inner(scope)
    raise UsageError(f"{ast.unparse(node)!r} is not allowed in an expression")


def _compare(node: ast.Compare) -> Compiled:
    left = _compile(node.left)
    tests = [(_comparison(op), _compile(right)) for op, right in zip(node.ops, node.comparators, strict=True)]

    def run(scope: Scope) -> bool:
        value = left(scope)
        for test, right in tests:
            other = right(scope)
            if not test(value, other):
                return False
            value = other
        return True

    return run


def _comparison(op: ast.cmpop) -> Callable[[Value, Value], bool]:
    if isinstance(op, ast.In | ast.NotIn):
        wanted = isinstance(op, ast.In)
        return lambda a, b: (b is not None and a is not None and a in b) is wanted
    test = _COMPARE[type(op)]
    if isinstance(op, _ORDERING):
        return lambda a, b: a is not None and b is not None and test(a, b)
    return test


def _arithmetic(node: ast.BinOp) -> Compiled:
    work = _ARITHMETIC.get(type(node.op))
    if work is None:
        raise UsageError(f"{ast.unparse(node)!r} is not allowed in an expression", hint="use + - * / // %")
    left, right = _compile(node.left), _compile(node.right)
    joins = isinstance(node.op, ast.Add)

    def run(scope: Scope) -> Value:
        a, b = left(scope), right(scope)
        if joins and isinstance(a, str) and isinstance(b, str):
            if len(a) + len(b) > _TOO_LONG:
                raise ValueError("the text grows too long")
            return a + b
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            raise TypeError(f"cannot compute with {_kind(a)} and {_kind(b)}")
        return work(a, b)

    return run


def _kind(value: Value) -> str:
    names: dict[type, str] = {str: "text", list: "a list", dict: "an object", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)


def _choice(node: ast.IfExp) -> Compiled:
    test, yes, no = _compile(node.test), _compile(node.body), _compile(node.orelse)
    return lambda scope: yes(scope) if test(scope) else no(scope)


def _list(node: ast.List | ast.Tuple | ast.Set) -> Compiled:
    items = [_compile(item) for item in node.elts]
    return lambda scope: [item(scope) for item in items]


def _subscript(node: ast.Subscript) -> Compiled:
    value, key = _compile(node.value), _compile(node.slice)
    return lambda scope: _item(value(scope), key(scope))


def _attribute(node: ast.Attribute) -> Compiled:
    """info.level is info['level']; attributes of Python objects are never looked at."""
    value, key = _compile(node.value), node.attr
    return lambda scope: _item(value(scope), key)


def _item(value: Value, key: Value) -> Value:
    if isinstance(value, dict):
        return value.get(key)
    if value is None:
        return None
    if isinstance(value, list | str) and isinstance(key, int):
        return value[key] if -len(value) <= key < len(value) else None
    raise TypeError(f"{_kind(value)} has no {key!r}")


def _call(node: ast.Call) -> Compiled:
    if not isinstance(node.func, ast.Name) or node.keywords:
        raise UsageError(f"{ast.unparse(node)!r} is not allowed in an expression", hint=_EXAMPLE)
    found = FUNCTIONS.get(node.func.id)
    if found is None:
        close = get_close_matches(node.func.id, FUNCTIONS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"functions: {', '.join(FUNCTIONS)}"
        raise UsageError(f"expression: there is no function {node.func.id!r}", hint=hint)
    meaning, fewest, most, function = found
    if not fewest <= len(node.args) <= most:
        raise UsageError(f"expression: {node.func.id} takes {fewest} to {most} values", hint=meaning)
    arguments = [_compile(argument) for argument in node.args]
    if node.func.id == "match" and isinstance(node.args[0], ast.Constant):
        return _compiled_match(node.args[0].value, arguments[1])
    return lambda scope: function(*(argument(scope) for argument in arguments))


def _compiled_match(pattern: Value, text: Compiled) -> Compiled:
    try:
        search = searcher(pattern)
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        raise UsageError(f"expression: {pattern!r} is not a regular expression: {error}") from error

    def run(scope: Scope) -> bool:
        value = text(scope)
        return value is not None and search(value)

    return run


_HANDLERS: dict[type[ast.expr], Callable[[Any], Compiled]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.BinOp: _arithmetic,
    ast.IfExp: _choice,
    ast.List: _list,
    ast.Tuple: _list,
    ast.Set: _list,
    ast.Subscript: _subscript,
    ast.Attribute: _attribute,
    ast.Call: _call,
}
