"""Start a plugin from a template: copy a folder, and put the new name wherever the template has its own.

A template is a distribution that works as it is. These words in file names and texts are replaced,
shown here with what the name `my-maze` makes of them:

    atropos-template   atropos-my-maze    the distribution
    atropos_template   atropos_my_maze    the package
    template-name      my-maze            the component
    template_name      my_maze            a function or module
    TemplateName       MyMaze             a class
"""

from __future__ import annotations

import difflib
import keyword
import re
import shutil
from pathlib import Path

from atropos_cli.sdk import DataError, UsageError

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*\Z")
_LONGEST = 60
_PREFIX = "atropos-"
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", ".git", ".pytest_cache", ".DS_Store")


def placeholders(name: str) -> dict[str, str]:
    """The words of a template and what a name makes of them. Raises UsageError for a name that cannot be used."""
    if not _NAME.match(name) or len(name) > _LONGEST:
        suggestion = "-".join(re.findall(r"[a-z0-9]+", re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", name).lower()))
        suggestion = suggestion.lstrip("0123456789-")[:_LONGEST].rstrip("-")
        raise UsageError(
            f"{name!r} cannot be the name of a plugin: use lower-case letters, digits and '-', beginning with a letter",
            hint=f"for example {suggestion}" if suggestion else "for example my-maze",
        )
    component = name.replace("_", "-").removeprefix(_PREFIX)
    identifier = component.replace("-", "_")
    if keyword.iskeyword(identifier) or not identifier.isidentifier():
        raise UsageError(f"{name!r} cannot be the name of a function in Python", hint=f"for example my-{component}")
    return {
        "atropos-template": _PREFIX + component,
        "atropos_template": (_PREFIX + component).replace("-", "_"),
        "template-name": component,
        "template_name": identifier,
        "TemplateName": "".join(part.capitalize() for part in component.split("-")),
    }


def planned_files(template_folder: Path, name: str) -> list[Path]:
    """The files that `instantiate` would write, relative to the destination, sorted."""
    words = placeholders(name)
    return sorted(_renamed(path.relative_to(template_folder), words) for path in _files(template_folder))


def instantiate(template_folder: Path, destination: Path, name: str) -> list[Path]:
    """Make a distribution called after `name` in the folder `destination`; returns the files, sorted.

    Raises UsageError for a bad name, and DataError when the destination holds anything, or on the
    disk's errors. Never overwrites a file.
    """
    words = placeholders(name)
    if not template_folder.is_dir():
        raise DataError(f"there is no template folder {template_folder}", hint=_similar(template_folder))
    written: list[Path] = []
    try:
        if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
            raise DataError(f"{destination} is already there", hint="choose another folder, or remove it first")
        destination.mkdir(parents=True, exist_ok=True)
        for source in _files(template_folder):
            target = destination / _renamed(source.relative_to(template_folder), words)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(_replaced(source.read_bytes(), words))
            shutil.copymode(source, target)
            target.chmod(target.stat().st_mode | 0o200)  # a template may lie in a read-only installation
            written.append(target)
    except OSError as error:
        raise DataError(f"cannot write {error.filename or destination}: {error.strerror or error}") from error
    return sorted(written)


def _files(folder: Path) -> list[Path]:
    """The template's regular files. Links are left out: they could lead out of the template."""
    found: list[Path] = []
    names = sorted(path.name for path in folder.iterdir())
    for name in sorted(set(names) - _LEFT_OUT(str(folder), names)):
        path = folder / name
        if path.is_symlink():
            continue
        if path.is_dir():
            found.extend(_files(path))
        elif path.is_file():
            found.append(path)
    return found


def _renamed(path: Path, words: dict[str, str]) -> Path:
    return Path(*(_substituted(part, words) for part in path.parts))


def _replaced(content: bytes, words: dict[str, str]) -> bytes:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return content  # not a text: a picture, say
    return _substituted(text, words).encode("utf-8")


def _substituted(text: str, words: dict[str, str]) -> str:
    # One pass, so that a new name that contains one of the words is not replaced again.
    return re.sub("|".join(words), lambda match: words[match.group()], text)


def _similar(folder: Path) -> str | None:
    if not folder.parent.is_dir():
        return None
    names = [path.name for path in folder.parent.iterdir() if path.is_dir()]
    close = difflib.get_close_matches(folder.name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"templates: {', '.join(sorted(names))}"
