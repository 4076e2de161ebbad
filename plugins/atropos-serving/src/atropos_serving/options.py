"""The options of the engines' own parsers, as tables: a typing error is found before a server is started.

The tables are dumped from the real parsers (`tests/fixtures/server_options/renew.py`). A newer engine may know
more, so an unknown option is a warning; with --strict it is an error.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any, NoReturn

from atropos_cli.sdk.serving import Engine

GONE: dict[Engine, dict[str, str]] = {
    "sglang": {
        "--tp": "--tp-size",
        "--dp": "--dp-size",
        "--pp": "--pp-size",
        "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
    },
    "vllm": {
        "--tp": "--tensor-parallel-size",
        "--dp": "--data-parallel-size",
        "--pp": "--pipeline-parallel-size",
        "--disable-log-requests": "--no-enable-log-requests",
        "--guided-decoding-backend": "--structured-outputs-config",
        "--model-path": "MODEL as the first argument",
    },
}
"""Names that older releases knew or that people try, and what to write."""


@dataclass(frozen=True, slots=True)
class OptionTable:
    """names: every spelling. rows: one per option, as the table has them."""

    engine: Engine
    version: str
    rows: tuple[dict[str, Any], ...]

    @property
    def names(self) -> dict[str, dict[str, Any]]:
        return {name: row for row in self.rows for name in row["names"]}


class _ParserError(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _ParserError(message)


@cache
def option_table(engine: Engine) -> OptionTable:
    """The table that comes with atropos."""
    text = resources.files("atropos_serving").joinpath(f"options_{engine}.json").read_text("utf-8")
    data = json.loads(text)
    return OptionTable(engine, data["version"], tuple(data["options"]))


def parser_of(table: OptionTable) -> argparse.ArgumentParser:
    """A parser with the table's options, abbreviations refused. The model may come first where the engine allows."""
    parser = _Parser(prog=table.engine, add_help=False, allow_abbrev=False)
    if table.engine == "vllm":
        parser.add_argument("model_tag", nargs="?")
    for row in table.rows:
        parser.add_argument(*row["names"], **_keywords(row))
    return parser


def _keywords(row: dict[str, Any]) -> dict[str, Any]:
    if row["kind"] == "flag":
        return {"action": "store_true", "dest": _dest(row)}
    kind = {"int": int, "float": float, "json": json.loads}.get(row.get("type", ""), str)
    nargs = {"value": None, "optional": "?", "many": "*"}[row["kind"]]
    return {"nargs": nargs, "type": kind, "dest": _dest(row)}


def _dest(row: dict[str, Any]) -> str:
    long = next((name for name in row["names"] if name.startswith("--")), row["names"][0])
    return str(long).lstrip("-").replace("-", "_")


def problems(engine: Engine, words: Sequence[str]) -> list[str]:
    """Errors in options for the engine, each with a hint: unknown names, missing or bad values."""
    table = option_table(engine)
    names = table.names
    found = _repeated(names, words)
    words = [_long(engine, word) for word in words]
    found += [_unknown(engine, word, names) for word in words if _is_option(word) and _name(word) not in names]
    if found:
        return list(dict.fromkeys(found))
    try:
        given = vars(parser_of(table).parse_args(words))
    except _ParserError as error:
        return [str(error)]
    for row in table.rows:
        values = given.get(_dest(row))
        choices = row.get("choices")
        if choices and values not in (None, False, True):
            for value in values if isinstance(values, list) else [values]:
                if str(value) not in choices:
                    found.append(f"{row['names'][0]} {value}: not one of {_some(str(value), choices)}")
    return found


def _repeated(names: dict[str, dict[str, Any]], words: Sequence[str]) -> list[str]:
    """Options given twice, of which the server would take the last; keys behind a dot are options of their own."""
    given: Counter[str] = Counter()
    for word in filter(_is_option, words):
        name = _name(word).replace("_", "-")
        row = names.get(name, {})
        if row.get("kind") != "flag":
            given[_dest(row) if row else name] += 1
    return [f"--{name.lstrip('-').replace('_', '-')} is given twice" for name, count in given.items() if count > 1]


def _long(engine: Engine, word: str) -> str:
    """vLLM also takes underscores, and JSON keys behind a dot (--hf-overrides.a 1)."""
    if engine != "vllm" or not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-").partition(".")[0] + equals + ("{}" if equals and "." in name else value)


def _is_option(word: str) -> bool:
    if not word.startswith("-") or word == "-":
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def _name(word: str) -> str:
    return word.partition("=")[0]


def _unknown(engine: Engine, word: str, names: Iterable[str]) -> str:
    name = _name(word)
    if name in GONE[engine]:
        return f"{name} is not an option of {engine}: write {GONE[engine][name]}"
    close = get_close_matches(name, [known for known in names if known.startswith("--")], n=2, cutoff=0.7)
    known = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"{name} is not an option of {engine} {option_table(engine).version}{known}"


def _some(value: str, choices: Sequence[str]) -> str:
    close = get_close_matches(value, choices, n=3, cutoff=0.5)
    shown = close or list(choices[:8])
    return ", ".join(shown) + (", ..." if len(shown) < len(choices) else "")
