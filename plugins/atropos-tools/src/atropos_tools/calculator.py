"""Arithmetic in a text. The text is parsed, never run; numbers stay below a limit."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from atropos_cli.sdk.tools import ToolError

Number = int | float
_LONGEST = 500
_BITS = 4096
_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def calculate(expression: str) -> Number:
    """The value of an expression with + - * / // % ** and brackets. Raises ToolError."""
    if len(expression) > _LONGEST:
        raise ToolError(f"the expression has more than {_LONGEST} characters")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _value(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolError(f"{expression!r} is not an expression of numbers") from None
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except OverflowError:
        raise ToolError("the result is too large") from None


def _value(node: ast.expr) -> Number:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _checked(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and abs(right) * _bits(left) > _BITS:
            raise OverflowError
        return _checked(_OPERATORS[type(node.op)](left, right))
    raise ValueError


def _bits(number: Number) -> int:
    return int(abs(number)).bit_length() + 1


def _checked(number: Number) -> Number:
    if isinstance(number, complex):
        raise ValueError
    if _bits(number) > _BITS:
        raise OverflowError
    return number
