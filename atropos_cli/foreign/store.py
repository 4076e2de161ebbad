"""Environments that `atropos env add` made known: for each a record with its source, its Python and versions."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from atropos_cli.domain.base import Frozen
from atropos_cli.errors import ConfigError, UsageError
from atropos_cli.paths import replacing

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
DEFAULT = "default"
"""The record whose Python runs environments without a name."""


class Added(Frozen):
    """One record. source: what the dialect runs, None for the Python alone. made: is the environment ours to delete?"""

    dialect: str
    name: str
    source: str | None = None
    python: str
    made: bool = False
    requirements: tuple[str, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return self.dialect if self.name == DEFAULT else f"{self.dialect}:{self.name}"

    @property
    def health(self) -> str:
        """What can be said of it without starting it."""
        if not os.access(self.python, os.X_OK):
            return f"no Python at {self.python}"
        path = None if self.source is None else path_of(self.source)
        if path is not None and not path.exists():
            return f"no file {path}"
        return "ok"


def path_of(source: str) -> Path | None:
    """The file or folder that a source names: FILE.py:ATTR, FILE.py@TASK, or an absolute path; None for other kinds."""
    for mark in (".py:", ".py@"):
        file, separator, _ = source.rpartition(mark)
        if separator:
            return Path(f"{file}.py")
    return Path(source) if source.startswith("/") else None


def folder() -> Path:
    """$XDG_DATA_HOME/atropos/foreign, where the records and the virtual environments are."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".local" / "share") / "atropos" / "foreign"


def venv_folder(dialect: str, name: str) -> Path:
    return folder() / dialect / name / "venv"


def added(dialect: str | None = None) -> Sequence[Added]:
    """All records, or those of a dialect, by name. Damaged ones are left out."""
    found = []
    for file in sorted(folder().glob(f"{dialect or '*'}/*/record.json")):
        try:
            found.append(Added.model_validate_json(file.read_bytes()))
        except (OSError, ValidationError):
            continue
    return found


def find(dialect: str, name: str) -> Added | None:
    """The record of that name."""
    return next((item for item in added(dialect) if item.name == name), None)


def known(dialect: str, name: str, hint: str = "") -> Added:
    """The record of an environment that was added under that name. hint: other ways to name one. Raises ConfigError."""
    record = find(dialect, name)
    if record is None or record.source is None:
        command = f"atropos env add {dialect} {name} --from SOURCE"
        raise ConfigError(f"there is no environment {dialect}:{name}", hint="; ".join(filter(None, (hint, command))))
    return record


def python_for(dialect: str, source: str) -> Added:
    """The record whose Python runs a source: the one added for it, else the dialect's own. Raises ConfigError."""
    records = added(dialect)
    chosen = next((item for item in records if item.source == source), None)
    chosen = chosen or next((item for item in records if item.name == DEFAULT), None)
    if chosen is None:
        raise ConfigError(
            f"no Python with {dialect} is known",
            hint=f"atropos env add {dialect} makes one; --python PATH names one that has it",
        )
    return chosen


def check_name(name: str) -> str:
    """Raises UsageError."""
    if not _NAME.match(name):
        raise UsageError(f"{name!r} cannot be the name of an environment", hint="letters, digits, - _ and .")
    if name == DEFAULT:  # its record would take the place of the Python that runs environments without one
        raise UsageError(f"{name!r} is what environments without a name are called", hint="choose another name")
    return name


def save(record: Added) -> Path:
    """Write a record, in the place of an earlier one of its name."""
    file = folder() / record.dialect / record.name / "record.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as out:
        out.write(json.dumps(record.model_dump(mode="json"), indent=1).encode() + b"\n")
    return file


def remove(record: Added) -> None:
    """Forget it, and delete its virtual environment where we made it."""
    place = folder() / record.dialect / record.name
    (place / "record.json").unlink(missing_ok=True)
    if record.made:
        shutil.rmtree(place / "venv", ignore_errors=True)
    if place.is_dir() and not any(place.iterdir()):
        place.rmdir()
