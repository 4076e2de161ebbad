"""Every test can fail: it asserts something, expects an error, or calls a helper that does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    [*ROOT.glob("tests/**/*.py"), *ROOT.glob("plugins/*/tests/**/*.py"), *ROOT.glob("templates/*/tests/*.py")]
)
CHECKS = {"raises", "warns", "fail", "check_call", "check_output", "assert_close", "assert_allclose"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def called(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def name_of(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def fails_by_itself(node: ast.AST) -> bool:
    """Is there an assertion, an error that is raised or expected, or a program whose exit code is checked?"""
    if any(isinstance(inner, ast.Assert | ast.Raise) for inner in ast.walk(node)):
        return True
    checked = [key for call in called(node) for key in call.keywords if key.arg == "check"]
    return bool(checked) or any(name_of(call) in CHECKS for call in called(node))


@cache
def functions() -> list[tuple[Path, Function]]:
    found = []
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [(path, node) for node in ast.walk(tree) if isinstance(node, Function)]
    return found


@cache
def checking() -> frozenset[str]:
    """Names of helpers of the tests that fail by themselves, or through another helper."""
    helpers = [node for _, node in functions() if not node.name.startswith("test_")]
    known = {node.name for node in helpers if fails_by_itself(node)}
    calls = {node.name: {name_of(call) for call in called(node)} for node in helpers if node.name not in known}
    while more := {name for name, names in calls.items() if name not in known and names & known}:
        known |= more
    return frozenset(known)


def test_every_test_can_fail() -> None:
    tests = [(path, node) for path, node in functions() if node.name.startswith("test_")]
    assert len(tests) > 1000
    empty = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, node in tests
        if not fails_by_itself(node) and not any(name_of(call) in checking() for call in called(node))
    ]
    assert not empty


@pytest.mark.parametrize(
    ("body", "can_fail"),
    [
        ("assert x", True),
        ("with pytest.raises(ValueError): x()", True),
        ("subprocess.run(x, check=True)", True),
        ("x()", False),
        ("print(x)", False),
    ],
)
def test_what_counts_as_a_check(body: str, can_fail: bool) -> None:
    assert fails_by_itself(ast.parse(body)) is can_fail


def test_nothing_is_true_in_any_case() -> None:
    always = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.BoolOp)
        and isinstance(node.op, ast.Or)
        and any(isinstance(value, ast.Constant) and value.value is True for value in node.values)
    ]
    assert not always
