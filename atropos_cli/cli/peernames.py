"""Names of other tools: what they mean here, or what to type instead. The tables are in othertools.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

Words = tuple[str, ...]
_Rows = Mapping[str, str]

_FILE = tomllib.loads(Path(__file__).with_name("othertools.toml").read_text(encoding="utf-8"))


def _by_name(rows: _Rows) -> dict[str, str]:
    return {name: text for names, text in rows.items() for name in names.split()}


def _by_words(rows: _Rows) -> dict[str, Words]:
    return {name: tuple(text.split()) for name, text in _by_name(rows).items()}


def _families(sections: Mapping[str, _Rows]) -> Iterator[tuple[str, _Rows]]:
    """(command, rows) for each command in the name of a section."""
    for commands, rows in sections.items():
        yield from ((command, rows) for command in commands.split())


COMMANDS: Mapping[str, Mapping[str, Words]] = {path: _by_words(rows) for path, rows in _FILE["commands"].items()}
"""By the path of a command group: a name, and the words of ours that mean it."""
COMMAND_HINTS: Mapping[str, Mapping[str, str]] = {path: _by_name(rows) for path, rows in _FILE["command-hints"].items()}
"""By the path of a command group: a name that means none of ours, and what to type instead."""
OPTIONS: dict[str, dict[str, Words]] = {}
"""By command: an option of another tool, and the words of ours that mean it; the last of them takes its value."""
OPTION_HINTS: dict[str, dict[str, str]] = {}
"""By command: an option that means none of ours, and what to type instead."""
IGNORED: dict[str, dict[str, tuple[bool, str]]] = {}
"""By command: an option that has nothing to say here: (does a value follow, why it can be left out)."""

for _command, _rows in _families(_FILE["options"]):
    OPTIONS.setdefault(_command, {}).update(_by_words(_rows))
for _command, _rows in _families(_FILE["option-hints"]):
    OPTION_HINTS.setdefault(_command, {}).update(_by_name(_rows))
for _kind, _takes_value in (("switches", False), ("with-value", True)):
    for _command, _rows in _families(_FILE["ignored"][_kind]):
        IGNORED.setdefault(_command, {}).update({name: (_takes_value, why) for name, why in _by_name(_rows).items()})
