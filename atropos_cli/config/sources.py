"""Collect what files, environment variables and flags say, each value with its origin.

Later sources win: variables that other tools share (OPENAI_BASE_URL), the user's file, ./atropos.toml or --config,
ATROPOS_* variables, flags. The file .env counts as variables.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from atropos_cli.config import dotenv
from atropos_cli.config.explain import shown
from atropos_cli.config.files import ConfigFile, read_config
from atropos_cli.config.options import Option, options_of
from atropos_cli.config.places import PREFIX as PREFIX
from atropos_cli.config.places import PROJECT_FILE as PROJECT_FILE
from atropos_cli.config.places import explicit_file as explicit_file
from atropos_cli.config.places import user_file as user_file
from atropos_cli.config.problems import Origin, OriginKind, Problem, suggest
from atropos_cli.config.program import KEYS as PROGRAM_KEYS
from atropos_cli.config.sections import COMMANDS, is_section, is_variable
from atropos_cli.errors import ConfigError

_PROGRAM = frozenset({"OFFLINE", "CACHE_DIR", "DOTENV", "LOG_LEVEL"})
"""Of the program as a whole, whatever options of a command have the same name."""
CONTROL = frozenset(
    {"CONFIG", "DEBUG", "DISABLE_PLUGINS", "STRICT_PLUGINS", "API_KEY", "SLURM_PROFILE", "REMOTE_PYTHON"} | _PROGRAM
)
"""ATROPOS_* variables that steer the program and are not settings."""


@dataclass(frozen=True)
class Bucket:
    """The options of one model, and where each source keeps them.

    section and table: `[env]` and `[environments.NAME]` of a file; both None for the top level.
    prefix: of its variables, after ATROPOS_. names: those of the component in use, short and qualified.
    model None: the component is not known yet, and its keys are ignored. installed: names of all
    components of the kind. shared: short variable names of options that have one. others: keys of the section that
    belong to other commands. own_only: mistakes in other sections, and in files that were not named, are ignored.
    """

    name: str
    label: str
    model: type[BaseModel] | None
    section: str | None = None
    table: str | None = None
    prefix: str = ""
    names: tuple[str, ...] = ()
    installed: Collection[str] = ()
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: tuple[Option, ...] = ()
    others: frozenset[str] = frozenset()
    own_only: bool = False

    def __post_init__(self) -> None:
        if self.model is not None and not self.options:
            object.__setattr__(self, "options", options_of(self.model))

    @property
    def by_path(self) -> dict[tuple[str, ...], Option]:
        return {option.path: option for option in self.options}

    @property
    def sections(self) -> set[tuple[str, ...]]:
        """The paths of nested models."""
        return {option.path[:end] for option in self.options for end in range(1, len(option.path))}


@dataclass(frozen=True, slots=True)
class Entry:
    """One value for one option.

    text: it came as text from a flag or a variable, and must be parsed. usual: a variable that other tools share.
    """

    bucket: str
    path: tuple[str, ...]
    value: Any
    origin: Origin
    text: bool = False
    usual: bool = False


@dataclass
class Collected:
    """Entries in ascending precedence, and what was wrong on the way."""

    entries: list[Entry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def load_files(explicit: Path | None) -> list[tuple[OriginKind, ConfigFile]]:
    """The files that apply, in ascending precedence. `explicit` is --config or ATROPOS_CONFIG."""
    found: list[tuple[OriginKind, ConfigFile]] = []
    own = user_file()
    if own.is_file():
        found.append(("user file", read_config(own)))
    if explicit is not None:
        found.append(("file", read_config(explicit, explicit=True)))
    elif Path(PROJECT_FILE).exists():
        found.append(("file", read_config(Path(PROJECT_FILE))))
    return found


# Files ---------------------------------------------------------------------------------------------------------------


class FileReader:
    """Sorts the keys of one file into the buckets they belong to."""

    def __init__(self, file: ConfigFile, kind: OriginKind, buckets: Sequence[Bucket], into: Collected) -> None:
        self.file = file
        self.kind = kind
        self.buckets = buckets
        self.into = into
        self.top = next(bucket for bucket in buckets if bucket.section is None)
        self.by_section = {bucket.section: bucket for bucket in buckets if bucket.section is not None}
        self.by_table: dict[str, list[Bucket]] = {}
        for bucket in buckets:
            if bucket.table is not None:
                self.by_table.setdefault(bucket.table, []).append(bucket)

    def read(self) -> None:
        """Add the file's entries; those of a component's own table after those of its section, since they win."""
        tables = []
        for key, value in self.file.tree.items():
            if key in self.by_section:
                self._walk(self.by_section[key], value, (key,), ())
            elif key in self.by_table:
                tables.append((key, value))
            elif key not in PROGRAM_KEYS and not is_section(key):
                self._walk(self.top, {key: value}, (), ())
        for key, value in tables:
            self._table(self.by_table[key], key, value)

    def _table(self, buckets: Sequence[Bucket], key: str, value: Any) -> None:
        if not isinstance(value, dict):
            self._problem((key,), f"[{key}]: expected one section per name, got {shown(value)}")
            return
        for name, sub in value.items():
            named = next((bucket for bucket in buckets if name in bucket.names), None)
            installed = buckets[0].installed
            if named is not None:
                self._walk(named, sub, (key, name), ())
            elif installed and name not in installed:
                close = suggest(name, installed)
                if close is not None:  # no close match: it may belong to a plugin that is not installed here
                    what = f"this command has no role {name!r}" if key == "role" else f"there is no {name!r} installed"
                    self._problem((key, name), f"[{key}.{name}]: {what}", f"did you mean {close!r}?")

    def _walk(self, bucket: Bucket, value: Any, loc: tuple[str, ...], rel: tuple[str, ...]) -> None:
        if bucket.model is None:
            return
        if not isinstance(value, dict):
            self._problem(loc, f"[{'.'.join(loc)}]: expected a section with keys, got {shown(value)}")
            return
        for key, sub in value.items():
            path = (*rel, key)
            if path in bucket.by_path:
                self.into.entries.append(Entry(bucket.name, path, sub, self._origin((*loc, key))))
            elif path in bucket.sections:
                self._walk(bucket, sub, (*loc, key), path)
            elif rel or key not in bucket.others:
                self._unknown(bucket, (*loc, key), path)

    def _unknown(self, bucket: Bucket, loc: tuple[str, ...], path: tuple[str, ...]) -> None:
        key = path[-1]
        near = {option.path[-1] for option in bucket.options if option.path[:-1] == path[:-1]}
        near |= {section[-1] for section in bucket.sections if section[:-1] == path[:-1]}
        if path[:-1] == () and bucket is self.top:
            near |= {*self.by_section, *self.by_table, *PROGRAM_KEYS, *COMMANDS}
        message = f"unknown key {'.'.join(loc)!r}" + (f" for {bucket.label}" if bucket is not self.top else "")
        exact = key.lower().replace("-", "_")
        if exact not in near:
            home = self._home_of(exact, bucket, path[:-1])
            if home is not None:
                self._problem(loc, message, home)
                return
        close = exact if exact in near else suggest(key, near)
        hint = f"did you mean {'.'.join((*loc[:-1], close))!r}?" if close is not None else None
        if hint is None and near and len(near) <= 12:
            hint = f"known here: {', '.join(sorted(near))}"
        self._problem(loc, message, hint)

    def _home_of(self, key: str, bucket: Bucket, within: tuple[str, ...]) -> str | None:
        """Where a key that is wrong here would be right."""
        for other in self.buckets:
            for option in other.options:
                if option.path[-1] != key or (other is bucket and option.path[:-1] == within):
                    continue
                section = ".".join((*((other.section,) if other.section else ()), *option.path[:-1]))
                return f"it belongs in section [{section}]" if section else "it belongs at the top, above any section"
        return None

    def _origin(self, loc: tuple[str, ...]) -> Origin:
        return Origin(self.kind, self.file.shown, self.file.line(loc))

    def _problem(self, loc: tuple[str, ...], message: str, hint: str | None = None) -> None:
        self.into.problems.append(Problem(self._origin(loc), message, hint))


# Environment variables -----------------------------------------------------------------------------------------------


def read_environment(environ: Mapping[str, str], buckets: Sequence[Bucket], into: Collected) -> None:
    """Add the ATROPOS_* variables. Empty ones count as not set."""
    top = next(bucket for bucket in buckets if bucket.section is None)
    flat: dict[str, tuple[Bucket, tuple[str, ...]]] = {}
    for option in top.options:
        flat["_".join(option.path[-1:]).upper()] = (top, option.path)
    for bucket in buckets:
        flat |= {name.upper(): (bucket, path) for name, path in bucket.shared.items()}
    for variable in sorted(environ):
        name = variable.removeprefix(PREFIX)
        value = environ[variable]
        if name == variable or not value or name.startswith("TEST_") or name in _PROGRAM:
            continue
        if name in CONTROL and name not in flat:
            continue
        origin = variable_origin(variable)
        inner = next((b for b in buckets if b.prefix and name.startswith(b.prefix)), None)
        if inner is not None:
            _prefixed(inner, name, value, origin, into)
        elif is_variable(name):
            continue
        elif name in flat:
            bucket, path = flat[name]
            if path in bucket.by_path:  # a shared name may say nothing to the component in use
                into.entries.append(Entry(bucket.name, path, value, origin, text=True))
        elif origin.kind == "environment variable":  # what .env holds may be meant for another program
            close = suggest(name, [*flat, *CONTROL])
            hint = f"did you mean {PREFIX}{close}?" if close else "see the names with: atropos config show"
            into.problems.append(Problem(origin, "unknown variable", hint))


def variable_origin(name: str) -> Origin:
    """The variable itself, or the line of .env that set it."""
    line = dotenv.from_dotenv(name)
    return Origin("environment variable", name) if line is None else Origin("file", dotenv.FILE, line)


def read_usual(environ: Mapping[str, str], buckets: Sequence[Bucket], into: Collected) -> None:
    """Add what variables say that other tools share, where the component in use has such an option."""
    by_name = {bucket.name: bucket for bucket in buckets}
    for variable, (name, option) in dotenv.SETTINGS.items():
        bucket, value = by_name.get(name), environ.get(variable)
        if bucket is not None and value and (option,) in bucket.by_path:
            into.entries.append(Entry(name, (option,), value, variable_origin(variable), text=True, usual=True))


def usual_address(entries: Sequence[Entry]) -> bool:
    """Does the address of the server come from a usual variable, and from no flag, file or variable of ours?"""
    last = [entry for entry in entries if entry.path == ("base_url",)][-1:]
    return any(entry.usual for entry in last)


def _prefixed(bucket: Bucket, name: str, value: str, origin: Origin, into: Collected) -> None:
    if bucket.model is None:
        return
    wanted = name.removeprefix(bucket.prefix).lower().split("__")
    for option in bucket.options:
        if [part.lower() for part in option.path] == wanted:
            into.entries.append(Entry(bucket.name, option.path, value, origin, text=True))
            return
    if origin.kind != "environment variable" or wanted[0] in bucket.others:
        return
    names = [bucket.prefix + "__".join(option.path).upper() for option in bucket.options]
    close = suggest(name, names)
    hint = f"did you mean {PREFIX}{close}?" if close else None
    into.problems.append(Problem(origin, f"{bucket.label} has no such option", hint))


def collect(
    buckets: Sequence[Bucket],
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Sequence[Entry] = (),
    preset: Path | None = None,
    files: bool = True,
) -> Collected:
    """Everything that was said, in ascending precedence. Unreadable files raise ConfigError at once.

    preset: a file of ours that every other source overrides. files: read those of the user and of the project.
    """
    into = Collected()
    chosen = explicit_file(config)
    if preset is not None:
        FileReader(read_config(preset), "found", buckets, into).read()
    read_usual(os.environ if environ is None else environ, buckets, into)
    for kind, file in load_files(chosen) if files else ():
        FileReader(file, kind, buckets, into).read()
    if files and chosen is None and not Path(PROJECT_FILE).exists():
        for other in ("atropos.yaml", "atropos.yml"):
            if Path(other).exists():
                raise ConfigError(
                    f"{other} is not read by itself", hint=f"give --config {other}, or use {PROJECT_FILE}"
                )
    read_environment(os.environ if environ is None else environ, buckets, into)
    into.entries.extend(flags)
    return into
