"""The fields that an expression reads, as far as a row may lack them: `score`, `info.level`, `rewards['math']`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

ALWAYS = frozenset({
    "rewards", "id", "info", "raw", "index", "text", "completion", "prompt", "chars", "words", "turns", "tool_calls",
    "truncated", "failed", "group_size",
})  # fmt: skip
"""Names that every rollout has; the contents of some of them may be missing."""


def paths_that_may_miss(node: ast.AST) -> Iterator[ast.expr]:
    """Names and dotted paths of an expression, but not those compared with None: there a missing one is asked for."""
    if isinstance(node, ast.Name):
        if node.id not in ALWAYS:
            yield node
        return
    if isinstance(node, ast.Attribute | ast.Subscript) and _is_path(node):
        yield node
        return
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Compare) and any(map(_is_none, (node.left, *node.comparators))):
        children = [child for child in children if not (isinstance(child, ast.expr) and _is_path(child))]
    elif isinstance(node, ast.Call):
        children = list(node.args)
    for child in children:
        yield from paths_that_may_miss(child)


def _is_path(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return _is_path(node.value)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str) and _is_path(node.value)
    return isinstance(node, ast.Name)


def _is_none(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in ("none", "null")
    return isinstance(node, ast.Constant) and node.value is None
