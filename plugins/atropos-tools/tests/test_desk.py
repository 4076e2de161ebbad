"""The tools of the demo: what they do, and what they refuse."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from atropos_tools.calculator import calculate
from atropos_tools.desk import Desk

from atropos_cli.sdk.tools import ToolError

ORDERS = [[1, "Ada", "lamp", 2, 500], [2, "Chen", "desk", 1, 9000]]


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk(ORDERS, {"a.txt": "1\n"})
    yield made
    made.close()


@pytest.mark.parametrize(
    ("text", "value"),
    [("1 + 2 * 3", 7), ("(17 ** 2) % 10", 9), ("-7 // 2", -4), ("7 / 2", 3.5), ("2 ** -1", 0.5), (" 1e3 ", 1000.0)],
)
def test_expressions_have_values(text: str, value: float) -> None:
    assert calculate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "1 +", "a", "__import__('os')", "'x' * 9", "True", "1 if 1 else 2"),
        *("9 ** 9 ** 9 ** 9", "7 ** 5000", "1e999 * 0", "1 / 0", "(-8) ** 0.5"),
        *("(" * 240 + "1" + ")" * 240, "9" * 600),
    ],
)
def test_what_is_no_sum_is_refused_at_once(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(ToolError):
        calculate(text)
    assert time.monotonic() - began < 1


def test_the_database_is_read(desk: Desk) -> None:
    assert desk.query("SELECT customer, cents FROM orders ORDER BY id") == {
        "columns": ["customer", "cents"],
        "rows": [["Ada", 500], ["Chen", 9000]],
    }


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM orders",
        "DROP TABLE orders",
        "ATTACH DATABASE '/etc/passwd' AS x",
        "PRAGMA writable_schema = 1",
        "SELECT load_extension('x')",
        "SELECT length(zeroblob(2000000))",
        "SELECT 1; SELECT 2",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "no sql",
    ],
)
def test_everything_else_is_refused_in_time(desk: Desk, sql: str) -> None:
    began = time.monotonic()
    with pytest.raises(ToolError):
        desk.query(sql)
    assert time.monotonic() - began < 5
    assert desk.query("SELECT count(*) FROM orders")["rows"] == [[2]]


def test_files_are_in_memory(desk: Desk) -> None:
    desk.write_file("../../b.txt", "x")
    assert desk.list_files() == ["../../b.txt", "a.txt"]
    assert desk.read_file("a.txt") == "1\n"
    with pytest.raises(ToolError, match="no file '/etc/passwd'"):
        desk.read_file("/etc/passwd")
    with pytest.raises(ToolError, match="full"):
        desk.write_file("c", "x" * 200_000)
