"""Paths with a scheme (s3://, gs://, hf://, https://, memory://), read through fsspec.

What is read is copied to a temporary file first: rows are read more than once, and parquet needs a file. Data files
are written there, too (see `upload`). Folders are made here only, because a run appends, locks and renames its files;
a `scheme://` path is refused before it becomes a folder called `scheme:`.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from atropos_cli.errors import DataError, UsageError

_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+::)*[A-Za-z][A-Za-z0-9+.-]+://")
_SCHEME = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+::)*[A-Za-z][A-Za-z0-9+.-]+:\Z")
_SCHEMES = re.compile(r"(?:\A|(?<=::))[A-Za-z][A-Za-z0-9+.-]+(?=:)")
_CHUNK = 1 << 20
_folder: Path | None = None
_copied: dict[tuple[str, Any], Path] = {}
"""Copies by address and state (size and time of change, or whatever the storage tells): nothing is fetched twice."""


def is_remote(name: str) -> bool:
    """Does the text begin with a scheme?"""
    return _URL.match(name) is not None


def make_folder(path: Path) -> None:
    """Make a folder for an output, with its parents. Raises UsageError for a path with a scheme, DataError where a
    file is in the way, and OSError."""
    scheme = next((part for part in path.parts if _SCHEME.match(part)), None)
    if scheme is not None:
        raise UsageError(
            f"this is written to this machine, and {scheme}// is another place",
            hint="give a local path, and copy or push the result (atropos push); "
            "sft-gen, dpo-gen, prompt-gen, filter, merge and score write files there",
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next((part for part in (path, *path.parents) if part.exists() and not part.is_dir()), path)
        raise DataError(f"{file} is a file, not a folder", hint="give another place") from None


def shown(url: str) -> str:
    """The address without what may be secret in it: a password, the signature behind a question mark."""
    return "::".join(map(_shown, url.split("::")))  # an address in an address: zip://rows.jsonl::https://...


def _shown(url: str) -> str:
    scheme, there, rest = url.partition("://")
    if not there:
        return url
    try:
        parts = urlsplit(f"//{rest}")
    except ValueError:  # brackets of a host that is no IPv6 address
        return f"{scheme.lower()}://{rest.partition('?')[0].partition('#')[0].rpartition('@')[2]}"
    return f"{scheme.lower()}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def copies(url: str, choose: Callable[[list[str]], list[str]]) -> list[tuple[str, Path]]:
    """(name to show, local copy) of a remote file, of those that a glob matches, or of those of a folder.

    choose: picks the data files out of the names in a folder. Raises DataError.
    """
    system, path = opened(url)
    scheme = url.partition("://")[0]
    try:
        names = _names(system, path, choose)
        if not names:
            raise DataError(
                f"{shown(url)} does not exist, or holds no data files", hint="give a file, a folder or a glob"
            )
        found = []
        for number, name in enumerate(names):
            label = shown(url) if len(names) == 1 and name == path else f"{scheme}://{name.lstrip('/')}"
            found.append((label, _copy(system, name, number)))
        return found
    except DataError:
        raise
    except Exception as error:  # each kind of storage has errors of its own
        raise DataError(
            f"{shown(url)} cannot be read: {type(error).__name__}{words_of(error, url)}",
            hint="check the address and the access to it, or copy it here",
        ) from error


def local_copy(name: str) -> str:
    """The path of a file: itself, or that of a local copy of a remote one. Raises DataError."""
    if not is_remote(name):
        return name
    found = copies(name, lambda names: [])
    if len(found) != 1:
        raise DataError(f"{shown(name)} are {len(found)} files", hint="name one of them")
    return str(found[0][1])


def opened(url: str, done: str = "read") -> tuple[Any, str]:
    """(file system, path) of an address. done: what is to be done with it. Raises DataError."""
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise DataError(
            f"{shown(url)}: {'reading' if done == 'read' else 'writing'} it needs fsspec",
            hint="pip install 'atropos-cli[remote]', or copy it here",
        ) from error
    try:
        system, path = fsspec.core.url_to_fs(_SCHEMES.sub(lambda found: found[0].lower(), url))
    except Exception as error:  # each kind of storage has errors of its own
        if isinstance(error, ImportError):
            hint = "install what reaches this kind of storage (s3fs, gcsfs, adlfs, ...), or copy it here"
        elif isinstance(error, ValueError):
            hint = "is the scheme spelt right? s3://, gs://, az://, hf:// and memory:// are some that are known"
        else:
            hint = "check the address and the access to it, or copy it here"
        raise DataError(f"{shown(url)} cannot be {done}{words_of(error, url)}", hint=hint) from error
    return system, str(path)


def _names(system: Any, path: str, choose: Callable[[list[str]], list[str]]) -> list[str]:
    if "*" in path or "[" in path:
        return sorted(system.glob(path))
    # A web server's page is no folder, whatever links stand in it.
    if "http" not in str(system.protocol) and system.isdir(path):
        return sorted(choose([str(name) for name in system.ls(path, detail=False)]))
    return [path] if system.exists(path) else []


def _copy(system: Any, name: str, number: int) -> Path:
    global _folder
    try:
        state = (name, system.ukey(name))
    except Exception:  # noqa: BLE001 - not every storage can tell, and each has errors of its own
        state = (name, None)
    if state[1] is not None and state in _copied:
        return _copied[state]
    if _folder is None:
        _folder = Path(tempfile.mkdtemp(prefix="atropos-remote-"))
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    target = Path(tempfile.mkdtemp(dir=_folder)) / f"{number}-{Path(urlsplit(name).path).name or 'data'}"
    with system.open(name, "rb") as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, _CHUNK)
    _copied[state] = target
    return target


def words_of(error: Exception, url: str) -> str:
    """The first line of an error after a colon, without what may be secret in the address."""
    text = str(error).replace(url, shown(url)).splitlines()
    return f": {text[0][:200]}" if text and text[0] else ""
