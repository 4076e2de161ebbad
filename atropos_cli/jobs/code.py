"""The code that a job runs with: what git says of it, and a copy of its folder that later edits do not change.

    found = look(folder, most=...)     its files without those that git ignores, and what git knows
    bring(found, place)                the copy at `place` becomes like it; only what differs is written

A copy holds MANIFEST: the files brought, by digest. Nothing else there is written over or removed: programs of jobs
work in the copy, and their files are the user's. The same functions serve a copy on another machine, where the
files come by ssh: `missing`, `put`, `settle`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from atropos_cli.domain.base import JsonDict, clean_text
from atropos_cli.domain.job import Code
from atropos_cli.errors import DataError, LaunchError
from atropos_cli.io.append import atomic_write
from atropos_cli.io.jsonvalue import open_file, read_object
from atropos_cli.jobs.git import GitSays, ask_git, listed

MANIFEST = ".atropos-code.json"
CODE_FOLDER = "code"
"""The copy's name in the folder of a job."""
_PLANS, _PLAN_KEYS = ("plan.json", "job.json"), frozenset({"atropos_version", "digest"})
"""Files of which one is in the folder of a run or of a job, and keys of which it has one."""
_NAMED = 8
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """A file, or a link. mode: its permissions. mark: sha256 of its content, or "-> TARGET"."""

    path: str
    size: int
    mode: int
    mark: str

    @property
    def target(self) -> str | None:
        """Where a link leads."""
        return self.mark[3:] if self.mark.startswith("-> ") else None


@dataclass(frozen=True, slots=True)
class Found:
    """A folder of code. left_out: names, for people. notes: what may surprise."""

    folder: Path
    items: tuple[Item, ...]
    git: GitSays
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(item.size for item in self.items)

    @property
    def digest(self) -> str:
        """The same for the same files, permissions included."""
        return digest_of(self.items)

    def code(self, place: str) -> Code:
        """The record of a copy at `place`."""
        left = tuple(clean_text(name) for name in self.left_out)
        copy = {"digest": self.digest, "files": len(self.items), "size": self.size, "left_out": left}
        found: Code = git_code(self.folder, self.git).replace(copy_at=clean_text(place), **copy)
        return found

    def describe(self) -> str:
        """One line."""
        what = f"{len(self.items)} files, {size_text(self.size)} of {self.folder}"
        if not self.left_out:
            return what
        more = len(self.left_out) - _NAMED
        return f"{what}; left out: {', '.join(self.left_out[:_NAMED])}" + (f" and {more} more" if more > 0 else "")


def digest_of(items: Iterable[Item]) -> str:
    """Of all files together."""
    text = json.dumps([[item.path, item.mode & 0o111, item.mark] for item in items])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def size_text(size: float) -> str:
    """1.2 MB, for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


def git_code(folder: Path, says: GitSays | None = None) -> Code:
    """What git knows of the folder's code; nothing is copied."""
    says = says or ask_git(folder)
    return Code(folder=clean_text(str(folder)), commit=says.commit, changed=says.changed, diff=says.diff)


def code_folder(folder: Path) -> Path:
    """The folder of --sync without links. Raises DataError for one that is not there, or that holds far more."""
    try:
        found = folder.resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise DataError(f"--sync {folder}: {error}", hint="give the folder of your code") from error
    if not found.is_dir():
        raise DataError(f"--sync {found}: there is no such folder", hint="give the folder of your code")
    with contextlib.suppress(RuntimeError):
        if found in (home := Path.home().resolve(), *home.parents):
            raise DataError(
                f"--sync {found}: your home is in it, with its keys and caches", hint="give the folder of your code"
            )
    return found


def look(folder: Path, *, most: int, without: Path | None = None) -> Found:
    """The files of a folder as they are now. most: bytes that may be copied. without: a folder to leave out.

    Raises DataError for what cannot be read, LaunchError for more than `most`.
    """
    folder = code_folder(folder)
    names, ignored = listed(folder)
    skipped = _Skipped(folder, without)
    chosen: list[tuple[str, os.stat_result]] = []
    for name in sorted(set(names)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # deleted, and git still knows it
            info = (folder / name).lstat()
            if not skipped.leaves(name, info) and not skipped.behind_link(name):
                chosen.append((name, info))
    if not chosen:
        raise DataError(f"--sync {folder}: there is nothing to copy", hint="is the whole folder ignored by git?")
    _check_size(folder, chosen, most)
    left = tuple(dict.fromkeys((*ignored, *skipped.names)))
    items = tuple(_item(folder, name, info) for name, info in chosen)
    outward = [item.path for item in items if item.target is not None and _leads_out(folder, item)]
    notes = (f"links that lead out of the folder stay links: {', '.join(outward[:_NAMED])}",) if outward else ()
    return Found(folder, items, ask_git(folder), left, notes)


class _Skipped:
    """Files not copied although git would take them: runs, copies of code, sockets."""

    def __init__(self, folder: Path, without: Path | None) -> None:
        self._folder = folder
        self._without = None if without is None else without.resolve()
        self._known: dict[PurePosixPath, bool] = {}
        self._links: dict[PurePosixPath, bool] = {}
        self.names: dict[str, None] = {}

    def leaves(self, name: str, info: os.stat_result) -> bool:
        for parent in reversed(PurePosixPath(name).parents[:-1]):
            if self._is_run(parent):
                self.names[f"{parent}/ (a run)"] = None
                return True
        if not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
            self.names[f"{name} (not a file)"] = None
            return True
        return name == MANIFEST

    def behind_link(self, name: str) -> bool:
        """Is a folder above it a link by now? The link is copied; git still knows the earlier files."""
        for parent in PurePosixPath(name).parents[:-1]:
            if parent not in self._links:
                self._links[parent] = (self._folder / parent).is_symlink()
            if self._links[parent]:
                return True
        return False

    def _is_run(self, folder: PurePosixPath) -> bool:
        if folder not in self._known:
            place = self._folder / folder
            ours = (place / MANIFEST).is_file() or any(_is_plan(place / name) for name in _PLANS)
            self._known[folder] = ours or place.resolve() == self._without
        return self._known[folder]


def _is_plan(path: Path) -> bool:
    """Is it a plan of ours, and not a file of the user's that is named alike?"""
    try:
        return not path.is_symlink() and not read_object(path).keys().isdisjoint(_PLAN_KEYS)
    except (OSError, ValueError):
        return False


def _check_size(folder: Path, chosen: Sequence[tuple[str, os.stat_result]], most: int) -> None:
    total = sum(info.st_size for _, info in chosen)
    if total <= most:
        return
    largest = sorted(chosen, key=lambda pair: -pair[1].st_size)[:3]
    names = ", ".join(f"{name} ({size_text(info.st_size)})" for name, info in largest)
    raise LaunchError(
        f"--sync {folder}: {size_text(total)} in {len(chosen)} files are more than the limit of {size_text(most)}; "
        f"the largest: {names}",
        hint="name in .gitignore what the job does not need, or give a larger --sync-limit",
    )


def _item(folder: Path, name: str, info: os.stat_result) -> Item:
    path = folder / name
    try:
        if stat.S_ISLNK(info.st_mode):
            return Item(name, 0, 0o777, f"-> {path.readlink()}")
        return Item(name, info.st_size, stat.S_IMODE(info.st_mode) & 0o777, _sha256(path))
    except OSError as error:
        raise DataError(f"--sync: {path} cannot be read: {error.strerror}", hint="name it in .gitignore") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _leads_out(folder: Path, item: Item) -> bool:
    target = os.path.normpath((folder / item.path).parent / (item.target or ""))
    return target != str(folder) and not target.startswith(f"{folder}{os.sep}")


# The copy ------------------------------------------------------------------------------------------------------------


def bring(found: Found, place: Path) -> list[str]:
    """Make the copy at `place` like the folder. Returns notes. Raises LaunchError, and DataError for a changed file."""
    todo = missing(place, found.items)
    begin(place, found.items)
    notes = []
    for item in todo:
        with opened(found, item) if item.target is None else contextlib.nullcontext() as source:
            notes += put(place, item, source)
    settle(place, found.items, found.code(str(place)))
    return notes


def opened(found: Found, item: Item) -> IO[bytes]:
    """The file in the folder. Raises DataError where it is not a file any more."""
    try:
        return open_file(found.folder / item.path)
    except OSError as error:
        raise DataError(
            f"{item.path} changed while it was copied: {error.strerror}", hint="the same command again"
        ) from error


def missing(place: Path, items: Sequence[Item]) -> list[Item]:
    """What differs there. Raises LaunchError for a folder with other things in it, and for names that lead out."""
    for item in items:
        parts = PurePosixPath(item.path).parts
        if not parts or item.path.startswith("/") or ".." in parts or "\0" in item.path:
            raise LaunchError(f"{item.path!r} is not the name of a file in a folder")
    if not (place / MANIFEST).exists() and place.is_dir() and any(place.iterdir()):
        raise LaunchError(
            f"{place} holds files that were not brought there by --sync", hint="give another --cwd, or empty it"
        )
    return [item for item in items if _mark_in(place, item.path) != (item.mark, item.mode)]


def begin(place: Path, items: Sequence[Item]) -> None:
    """Remove files brought earlier that are no longer in the folder, unless somebody changed it there.

    Both lists are noted, so that a copy that is broken off is still known as one.
    """
    place.mkdir(parents=True, exist_ok=True)
    now, before = {item.path: item.mark for item in items}, _manifest(place)
    _note(place, {**now, **before}, "")
    for name, mark in before.items():
        path = place / name
        found = None if name in now else _mark_in(place, name)
        if found is not None and found[0] == mark:
            path.unlink()
            for parent in path.relative_to(place).parents[:-1]:
                with contextlib.suppress(OSError):  # something else is in it
                    (place / parent).rmdir()


def put(place: Path, item: Item, source: IO[bytes] | None) -> list[str]:
    """Write one file whole. A file that somebody has changed there is kept beside it, and noted."""
    path = place / item.path
    notes = _make_way(place, item.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    now = _mark(path)
    if now is not None and now[0] not in (_manifest(place).get(item.path), item.mark):
        notes.append(_kept(path))
    if item.target is not None:
        if path.is_symlink() or path.exists():
            path.unlink()
        path.symlink_to(item.target)
        return notes
    assert source is not None
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".atropos-")
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as file:
            left = item.size
            while left and (block := source.read(min(_BLOCK, left))):
                digest.update(block)
                file.write(block)
                left -= len(block)
        if digest.hexdigest() != item.mark:
            raise DataError(f"{item.path} changed while it was copied", hint="the same command again")
        Path(temporary).chmod(item.mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return notes


def _make_way(place: Path, name: str) -> list[str]:
    """Nothing is written through a link, or where a file takes the place of a folder: those are kept beside."""
    above = [place / parent for parent in reversed(PurePosixPath(name).parents[:-1])]
    return [_kept(path) for path in above if path.is_symlink() or (path.exists() and not path.is_dir())]


def _kept(path: Path) -> str:
    """Move away what somebody has put there; the note about it."""
    kept = _free(path)
    path.rename(kept)
    return f"{path} was changed there: kept as {kept.name}"


def settle(place: Path, items: Sequence[Item], code: Code) -> None:
    """All is there: note it, with the facts about the code."""
    _note(place, {item.path: item.mark for item in items}, code.digest or "", code.model_dump(mode="json"))


def code_of(folder: Path) -> Code | None:
    """The code of a program that runs in a folder: of the copy that this is, or as git knows it; None: not known."""
    for place in (folder, *folder.parents):
        if (place / MANIFEST).is_file():
            with contextlib.suppress(OSError, ValueError):
                return Code.model_validate(json.loads((place / MANIFEST).read_bytes())["code"])
            return None
    known = git_code(folder)
    return known if known.commit else None


def digest_at(place: Path) -> str | None:
    """The digest of the whole copy there; None where there is none, or where it was broken off."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return json.loads((place / MANIFEST).read_bytes()).get("digest") or None
    return None


def _note(place: Path, files: Mapping[str, str], digest: str, code: JsonDict | None = None) -> None:
    text = json.dumps({"digest": digest, "files": dict(files), "code": code})
    atomic_write(place / MANIFEST, text.encode("utf-8") + b"\n")


def _manifest(place: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found: Any = json.loads((place / MANIFEST).read_bytes()).get("files")
        return {str(name): str(mark) for name, mark in found.items()}
    return {}


def _mark_in(place: Path, name: str) -> tuple[str, int] | None:
    """The same of a file of the copy; None behind a link, which leads elsewhere."""
    if any((place / parent).is_symlink() for parent in PurePosixPath(name).parents[:-1]):
        return None
    return _mark(place / name)


def _mark(path: Path) -> tuple[str, int] | None:
    """The mark and the permissions of the file there; None for nothing."""
    try:
        info = path.lstat()
        if stat.S_ISLNK(info.st_mode):
            return f"-> {path.readlink()}", 0o777
        if not stat.S_ISREG(info.st_mode):
            return "another thing", 0
        return _sha256(path), stat.S_IMODE(info.st_mode) & 0o777
    except OSError:
        return None


def _free(path: Path) -> Path:
    number = 1
    while (kept := path.with_name(f"{path.name}.kept-{number}")).exists() or kept.is_symlink():
        number += 1
    return kept
