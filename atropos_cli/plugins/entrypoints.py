"""Read the entry points of installed distributions without importing any of them.

`importlib.metadata.entry_points()` reads all distributions in one go, so that one damaged file would
hide every plugin; here each distribution has its own `try`. Like pip and the import system, the
first distribution of a name on sys.path hides later ones of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PLUGIN_GROUP = "atropos"
COMMAND_GROUP = "atropos.commands"
DISABLE_VARIABLE = "ATROPOS_DISABLE_PLUGINS"
_GROUPS = (PLUGIN_GROUP, COMMAND_GROUP)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry point. record: the distribution as found; None for the built-in one, which needs no record."""

    point: metadata.EntryPoint
    dist: str
    version: str
    record: metadata.Distribution | None = None

    @property
    def name(self) -> str:
        return self.point.name

    @property
    def module(self) -> str:
        """The module part of the entry point's value, "pkg.mod" of "pkg.mod:attr"."""
        return self.point.value.partition(":")[0].strip()

    @property
    def place(self) -> Path | None:
        """The folder that holds the record, for messages: looked for only then, as it means reading folders."""
        return None if self.record is None else record_folder(self.record)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A distribution that speaks of our groups, but whose record cannot be read."""

    dist: str
    version: str
    place: Path
    error: Exception


def normalized(name: str) -> str:
    """A distribution's name as package indexes compare it: lower case, runs of '-', '_', '.' as one '-'."""
    return re.sub(r"[-_.]+", "-", name).strip().lower()


def scan() -> tuple[list[Entry], list[Damaged]]:
    """All entry points of our groups, in an order that does not depend on the file system, and what is unreadable."""
    entries: dict[tuple[str, str, str, str], Entry] = {}
    damaged: list[Damaged] = []
    for dist in metadata.distributions():
        text = _entry_points_text(dist)
        if PLUGIN_GROUP not in text:  # nearly all distributions end here: their metadata is never parsed
            continue
        name, version = _name_and_version(dist)
        try:
            points = [point for point in dist.entry_points if point.group in _GROUPS]
        except Exception as error:  # noqa: BLE001 - whatever a damaged file does to the parser, go on
            damaged.append(Damaged(name, version, record_folder(dist), error))
            continue
        if not points or _hidden(dist, name):
            continue
        for point in points:
            # Two records of one distribution in one folder (a broken upgrade) say the same thing twice.
            entries.setdefault(
                (point.group, normalized(name), point.name, point.value), Entry(point, name, version, dist)
            )
    return [entries[key] for key in sorted(entries)], sorted(damaged, key=lambda item: (item.dist, str(item.place)))


def disabled_names(disabled: Collection[str] | None, environ: Mapping[str, str]) -> frozenset[str]:
    """The names of plugins to leave out: the given ones, else those in ATROPOS_DISABLE_PLUGINS."""
    names = environ.get(DISABLE_VARIABLE, "").split(",") if disabled is None else disabled
    return frozenset(normalized(name) for name in names if name.strip())


def is_disabled(entry: Entry, disabled: frozenset[str]) -> bool:
    """Is the entry point named, by its own or its distribution's name, or by "all"?"""
    return not disabled.isdisjoint({"all", normalized(entry.name), normalized(entry.dist)})


def record_folder(dist: metadata.Distribution) -> Path:
    """Where the distribution's record (`*.dist-info`) lies, or the folder above: what to delete when pip cannot."""
    text = _entry_points_text(dist)
    root = Path(str(dist.locate_file("")))
    for folder in _records(root):
        try:
            if (folder / "entry_points.txt").read_text(encoding="utf-8") == text:
                return folder
        except (OSError, UnicodeDecodeError):
            continue
    return root


def _records(root: Path) -> Iterator[Path]:
    for pattern in ("*.dist-info", "*.egg-info"):
        yield from sorted(root.glob(pattern))


def _entry_points_text(dist: metadata.Distribution) -> str:
    try:
        return dist.read_text("entry_points.txt") or ""
    except Exception:  # noqa: BLE001 - not UTF-8, not a file, ...: it cannot be told whether it is ours
        return ""


def _name_and_version(dist: metadata.Distribution) -> tuple[str, str]:
    try:
        fields = dist.metadata  # parsed anew at each access
        return fields["Name"] or "unknown", fields["Version"] or "unknown"
    except Exception:  # noqa: BLE001 - a leftover record may have lost its METADATA
        return "unknown", "unknown"


def _hidden(dist: metadata.Distribution, name: str) -> bool:
    try:
        first = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return str(first.locate_file("")) != str(dist.locate_file(""))
