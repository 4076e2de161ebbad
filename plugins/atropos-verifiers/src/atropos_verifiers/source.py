"""What `--from` names: a package on an index, a folder or a file; what to install for it, and what to import."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from atropos_cli.sdk import UsageError

BEFORE_04 = "verifiers>=0.1.14,<0.4"
FROM_04 = "verifiers>=0.4,<0.5"
ANY = "verifiers>=0.1.14,<0.5"
"""Each with a lower bound: without one, a resolver that is in trouble installs a version from years ago."""

_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?\s*([=<>!~@][^:]*)?\Z", re.DOTALL)
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")
_LOADS = re.compile(r"^\s*(async )?def load_environment\b|\bimport\b.*\bload_environment\b", re.MULTILINE)
_MOST_FILES = 500


def check_source(text: str) -> str:
    """A path becomes an absolute one; a requirement stays as it is. Raises UsageError."""
    place = Path(text).expanduser()
    if ("/" in text and "://" not in text) or (text and place.exists()):
        if not place.exists():
            raise UsageError(f"there is no {place}", hint="name a folder with a pyproject.toml, a module or a package")
        if place.is_dir() and not any(place.glob("*.py")) and not (place / "pyproject.toml").is_file():
            raise UsageError(f"{place} has neither a pyproject.toml nor Python files")
        return str(place.resolve())
    requirement, colon, module = text.partition(":")
    if not _REQUIREMENT.match(requirement) or (colon and not _MODULE.match(module)):
        hint = "--from ./FOLDER, PACKAGE or PACKAGE:MODULE"
        raise UsageError(f"{text!r} is neither a path nor the name of a package", hint=hint)
    return text


def installs(source: str) -> tuple[str, ...]:
    """The requirements of a source: itself where it can be installed, and a verifiers whose API it is written for."""
    if not source.startswith("/"):
        return (source.partition(":")[0], ANY)
    place = Path(source)
    framework = BEFORE_04 if loads_itself(place) else FROM_04
    name = _project(place).get("name")
    return (f"{name} @ {place.as_uri()}", framework) if name else (framework,)


def module_of(source: str) -> tuple[str, str | None]:
    """(the module to import, the folder to import it from where it is not installed)."""
    if not source.startswith("/"):
        requirement, _, module = source.partition(":")
        return module or _module(re.split(r"[\[=<>!~@\s]", requirement, maxsplit=1)[0]), None
    place = Path(source)
    if name := _project(place).get("name"):
        return _module(str(name)), None
    return _module(place.stem), str(place.parent)


def loads_itself(place: Path) -> bool:
    """Is it written for the API before 0.4, which calls load_environment()?"""
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))[:_MOST_FILES]
    return any(_LOADS.search(_text(file)) for file in files)


def _module(name: str) -> str:
    return name.rpartition("/")[2].replace("-", "_").lower()


def _project(place: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(_text(place / "pyproject.toml")).get("project", {}) if place.is_dir() else {}
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{place / 'pyproject.toml'} is not TOML: {error}") from error
    return found if isinstance(found, dict) else {}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
