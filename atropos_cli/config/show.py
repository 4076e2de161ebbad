"""The configuration in force as rows: key, value, where the value comes from. Secrets are masked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

from atropos_cli.config import dotenv
from atropos_cli.config.options import MASK, value_text
from atropos_cli.config.problems import DEFAULT, Origin
from atropos_cli.config.program import ProgramSettings
from atropos_cli.config.resolve import Resolved
from atropos_cli.config.sources import variable_origin
from atropos_cli.redaction import names_a_secret


@dataclass(frozen=True, slots=True)
class Row:
    """One option. `key` is the name in a configuration file, with its section."""

    key: str
    value: Any
    origin: Origin

    @property
    def text(self) -> str:
        return value_text(self.value)

    def as_json(self) -> dict[str, Any]:
        """For --json: the value as JSON, and the source split into its parts."""
        source: dict[str, Any] = {"kind": self.origin.kind}
        if self.origin.name:
            source["name"] = self.origin.name
        if self.origin.line is not None:
            source["line"] = self.origin.line
        return {"key": self.key, "value": self.value, "source": source}


def program_rows(settings: ProgramSettings) -> list[Row]:
    """The switches of the whole program."""

    def origin(source: str) -> Origin:
        if source == "default":
            return DEFAULT
        if source.startswith("--"):
            return Origin("flag", source)
        return variable_origin(source) if source.isupper() else Origin("file", source)

    folder = None if settings.cache_dir is None else str(settings.cache_dir)
    return [
        Row("offline", settings.offline, origin(settings.offline_source)),
        Row("cache_dir", folder, origin(settings.cache_source)),
    ]


def usual_rows(settings: Sequence[Row]) -> list[Row]:
    """The usual variables that are set, by their own names, but for those that are the source of a setting."""
    found = []
    shown = {row.origin for row in settings}
    for name in (*dotenv.SETTINGS, *dotenv.READ_BY_LIBRARIES):
        value = os.environ.get(name)
        if value and variable_origin(name) not in shown:
            found.append(Row(name, MASK if names_a_secret(name) else value, variable_origin(name)))
    return found


def rows(resolved: Resolved) -> list[Row]:
    """Every option of every known component, in the order of the models."""
    found = []
    for bucket in resolved.buckets:
        if bucket.name not in resolved.models:
            continue
        for option in bucket.options:
            value = _plain(resolved.value(bucket.name, option.path), secret=option.secret)
            key = ".".join(((bucket.section,) if bucket.section else ()) + option.path)
            found.append(Row(key, value, resolved.origin(bucket.name, option.path)))
    return found


def _plain(value: Any, *, secret: bool) -> Any:
    if value is not None and (secret or isinstance(value, (SecretStr, SecretBytes))):
        return MASK
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return to_jsonable_python(value, fallback=str)
