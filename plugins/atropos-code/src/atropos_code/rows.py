"""Read data set rows from a file or the hub, and find out which names a task's tests need from a program."""

from __future__ import annotations

import ast
import builtins
import gzip
import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError, DataError

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """The objects of a JSON array or of JSON lines, gzipped or not. Raises DataError that names the place."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except (OSError, EOFError, ValueError) as error:
        raise DataError(
            f"cannot read {path}: {error}", hint="--data-path FILE (.json or .jsonl, may be gzipped)"
        ) from None
    rows: list[Any] = []
    whole = text.lstrip().startswith("[")
    for number, part in enumerate([text] if whole else text.split("\n"), 1):
        try:
            rows += json.loads(part) if whole else [json.loads(part)] if part.strip() else []
        except ValueError as error:
            raise DataError(f"{path}{'' if whole else f' line {number}'} is not JSON: {error}") from None
    bad = next((index for index, row in enumerate(rows) if not isinstance(row, dict)), None)
    if bad is not None:
        raise DataError(f"{path}: row {bad + 1} is not an object")
    return rows


def hub_rows(name: str, config: str | None) -> list[Row]:
    """All rows of all splits of a data set on the hub. Raises ConfigError where that is not possible."""
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"no data: {name} comes from the hub, and the package `datasets` is not installed",
            hint="pip install datasets, or --data-path FILE",
        ) from None
    try:
        found = datasets.load_dataset(name, config)
    except Exception as error:  # noqa: BLE001 - the library raises anything from OSError to ValueError
        raise ConfigError(
            f"cannot load {name} from the hub: {error}", hint="--data-path FILE for a local copy"
        ) from None
    return [dict(row) for split in found.values() for row in split]


def text_of(row: Row, *keys: str) -> str:
    """The first of these fields that holds text, with line ends made alike; empty without one."""
    for key in keys:
        value = row.get(key)
        if isinstance(value, str) and value:
            return value.replace("\r\n", "\n").replace("\r", "\n")
    return ""


def texts_of(row: Row, key: str) -> list[str]:
    """A field that holds a list of texts."""
    value = row.get(key)
    return [str(item).replace("\r\n", "\n") for item in value] if isinstance(value, list | tuple) else []


def names_needed(tests: Iterable[str], gold: str, known: Iterable[str]) -> list[str]:
    """The names in the tests that the program has to define, in the order of their use.

    With a gold program: those that it defines at its top level, built-in names among them. Without
    one: those that are not built-ins and that neither the tests nor `known` (imports, set-up) define.
    """
    used: list[str] = []
    defined: set[str] = set()
    for test in tests:
        loads, stores = _names(test)
        used += [name for name in loads if name not in used]
        defined |= stores
    if gold.strip():
        own = _top_level(gold)
        if own:
            return [name for name in used if name in own]
    for text in known:
        defined |= _names(text)[1]
    return [name for name in used if name not in defined and not hasattr(builtins, name)]


def imports_needed(tests: Iterable[str], gold: str) -> list[str]:
    """Import statements of the gold program that the tests rely on."""
    used = {name for test in tests for name in _names(test)[0]}
    found = []
    for node in _parse(gold).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            if bound & used:
                found.append(ast.unparse(node))
    return found


def _parse(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def _names(text: str) -> tuple[list[str], set[str]]:
    """(names read, names bound anywhere) in a piece of code."""
    loads: list[tuple[int, int, str]] = []
    stores: set[str] = set()
    for node in ast.walk(_parse(text)):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                loads.append((node.lineno, node.col_offset, node.id))
            else:
                stores.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            stores.add(node.name)
        elif isinstance(node, ast.arg):
            stores.add(node.arg)
        elif isinstance(node, ast.alias):
            stores.add((node.asname or node.name).partition(".")[0])
    return [name for _, _, name in sorted(loads)], stores


def _top_level(text: str) -> set[str]:
    """Functions, classes and variables that a program defines; not what it imports."""
    found: set[str] = set()
    for node in _parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found
