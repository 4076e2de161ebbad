"""The tools of one episode: a calculator, a database and files that exist in memory only."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from atropos_cli.sdk import JsonDict
from atropos_cli.sdk.tools import ToolError
from atropos_tools.calculator import calculate as value_of

_STEPS, _EVERY = 2_000_000, 10_000
_MOST_ROWS = 200
_LONGEST = 1_000_000
_TABLE = "CREATE TABLE orders (id INTEGER, customer TEXT, product TEXT, pieces INTEGER, cents INTEGER)"
_MOST_FILES, _MOST_BYTES = 100, 100_000
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})


class Desk:
    """What the model finds on its desk. Every public method is a tool."""

    def __init__(self, orders: Sequence[Sequence[object]], files: Mapping[str, str]) -> None:
        self._files = dict(files)
        self._steps = 0
        self._database = sqlite3.connect(":memory:")
        self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        self._database.execute(_TABLE)
        self._database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", orders)
        self._database.commit()
        self._database.set_authorizer(_may)
        self._database.set_progress_handler(self._tick, _EVERY)

    def calculate(self, expression: str) -> int | float:
        """Calculate an expression.

        expression: numbers with + - * / // % ** and brackets
        """
        return value_of(expression)

    def query(self, sql: str) -> JsonDict:
        """Read from the database. It has one table, orders (id, customer, product, pieces, cents per piece).

        sql: one SELECT statement of SQLite
        """
        self._steps = 0
        try:
            cursor = self._database.execute(sql)
            rows = cursor.fetchmany(_MOST_ROWS + 1)
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            raise ToolError(str(error)) from None
        columns: list[JsonValue] = [column[0] for column in cursor.description or ()]
        plain: list[JsonValue] = [[_cell(cell) for cell in row] for row in rows[:_MOST_ROWS]]
        more: JsonDict = {"more_rows": True} if len(rows) > _MOST_ROWS else {}
        return {"columns": columns, "rows": plain, **more}

    def list_files(self) -> list[str]:
        """List the names of all files."""
        return sorted(self._files)

    def read_file(self, name: str) -> str:
        """Read a file.

        name: as list_files gives it
        """
        if name not in self._files:
            raise ToolError(f"there is no file {name!r}")
        return self._files[name]

    def write_file(self, name: str, text: str) -> str:
        """Write a file, or replace it.

        name: of the file
        text: all of its new text
        """
        if len(text) > _MOST_BYTES or (name not in self._files and len(self._files) >= _MOST_FILES):
            raise ToolError("the disk is full")
        self._files[name] = text
        return f"wrote {len(text)} characters to {name}"

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _tick(self) -> bool:
        """Ends a statement that takes too many steps."""
        self._steps += _EVERY
        return self._steps > _STEPS


def _cell(value: object) -> JsonValue:
    return value if isinstance(value, int | float | str) else None


def _may(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def files_of(desk: Desk) -> dict[str, str]:
    """The files as they are now."""
    return dict(desk._files)
