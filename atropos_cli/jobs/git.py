"""What git says of a folder: its files without the ignored ones, its commit, and its uncommitted changes.

Nothing of the repository is executed (no hooks, no external diff, no filters of its own configuration, no file system
monitor), and nothing is written.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from atropos_cli.domain.base import clean_text
from atropos_cli.errors import DataError, LaunchError

_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "core.hooksPath=/dev/null")
_FILTER = re.compile(r"filter\.(.+)\.(?:clean|smudge|process|required)", re.DOTALL | re.IGNORECASE)
_UNREADABLE = "could not open directory"
_PATIENCE = 120
_DIFF_LINES = 40
_DROPPED = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CEILING_DIRECTORIES", "GIT_CONFIG_PARAMETERS")


@dataclass(frozen=True, slots=True)
class GitSays:
    """commit: None outside of a repository, or before its first. diff: `git diff --stat` against it, cut."""

    commit: str | None = None
    changed: bool = False
    diff: str = ""


def ask_git(folder: Path) -> GitSays:
    """The commit of the folder, and the uncommitted changes in it; nothing where git does not answer."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if commit is None:
        return GitSays()
    plain = _without_filters(folder)
    changed = _git(folder, "status", "--porcelain", "--", ".", where=plain)
    if not changed:
        return GitSays(commit.strip())
    compare = ("diff", "--stat=100", "--no-ext-diff", "--no-textconv", "HEAD", "--", ".")
    stat = clean_text(_git(folder, *compare, where=plain) or "")
    lines = stat.rstrip("\n").splitlines()
    if len(lines) > _DIFF_LINES:
        lines = [*lines[: _DIFF_LINES - 1], lines[-1]]
    new = sum(line.startswith("??") for line in changed.splitlines())
    lines += [f" {new} new, not in git"] if new else []
    return GitSays(commit.strip(), changed=True, diff="\n".join(lines))


def _without_filters(folder: Path) -> tuple[str, ...]:
    """Options that turn off the programs which the repository's own configuration names for the content of files."""
    names = _git(folder, "config", "--local", "--includes", "-z", "--name-only", "--get-regexp", r"^filter\.") or ""
    drivers = {match[1] for name in names.split("\0") if (match := _FILTER.fullmatch(name))}
    off = [f"filter.{name}.{key}" for name in sorted(drivers) for key in ("clean=", "process=", "required=false")]
    return tuple(word for text in off for word in ("-c", text))


def listed(folder: Path) -> tuple[list[str], list[str]]:
    """(files, names left out), relative. Outside of a repository git reads the .gitignore files all the same.

    Raises LaunchError where there is a .gitignore and no git to read it.
    """
    if shutil.which("git") is None:
        if next(folder.rglob(".gitignore"), None) is not None:
            raise LaunchError("--sync: git, which reads .gitignore, is not installed here", hint="apt-get install git")
        return _walked(folder), []
    if _git(folder, "rev-parse", "--is-inside-work-tree") is not None:
        return _with(folder)
    return _as_new(folder)


def _as_new(folder: Path) -> tuple[list[str], list[str]]:
    """As in a repository that knows none of the files yet."""
    with tempfile.TemporaryDirectory(prefix="atropos-") as empty:
        if _git(folder, "init", "-q", "--bare", "--template=", empty) is None:
            raise LaunchError("--sync: git cannot list the files", hint="try: git init in the folder")
        return _with(folder, f"--git-dir={empty}", f"--work-tree={folder}")


def _with(folder: Path, *where: str) -> tuple[list[str], list[str]]:
    text = _git(folder, "ls-files", "-z", "-co", "--exclude-standard", where=where, whole=True)
    left = _git(folder, "ls-files", "-z", "-oi", "--exclude-standard", "--directory", where=where)
    if text is None or left is None:
        raise LaunchError(
            f"--sync {folder}: git cannot list its files, or needs more than {_PATIENCE} s for it",
            hint="try: git status in the folder; give the folder of your code alone",
        )
    names: list[str] = []
    ignored = [name for name in left.split("\0") if name]
    for name in text.split("\0"):
        if not name:
            continue
        if not (folder / name).is_dir() or (folder / name).is_symlink():
            names.append(name)
            continue
        own = (folder / name / ".git").exists()  # a repository within, a submodule or not
        inner, inner_ignored = listed(folder / name) if own else _as_new(folder / name)
        names += [f"{name.rstrip('/')}/{path}" for path in inner]
        ignored += [f"{name.rstrip('/')}/{path}" for path in inner_ignored]
        ignored += [f"{name.rstrip('/')}/ (a submodule that is not checked out)"] if not (own or inner) else []
    git = [".git/"] if (folder / ".git").exists() else []
    return [name for name in names if ".git" not in name.split("/")], [*git, *ignored]


def _walked(folder: Path) -> list[str]:
    found = []
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        folders[:] = [name for name in folders if name not in (".git", "__pycache__", *links)]
        found += [os.path.relpath(Path(place, name), folder) for name in (*files, *links)]
    return found


def _git(folder: Path, *words: str, where: tuple[str, ...] = (), whole: bool = False) -> str | None:
    """What git prints; None where it fails. whole: raise DataError for a folder that it cannot read and leaves out."""
    program = shutil.which("git")
    if program is None:
        return None
    env = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    try:
        done = subprocess.run(  # noqa: S603 - no shell
            [program, *_SAFE, *where, *words],
            cwd=folder,
            env={**env, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    complaints = os.fsdecode(done.stderr).splitlines() if whole else []
    if unread := [line.partition(_UNREADABLE)[2].strip() for line in complaints if _UNREADABLE in line]:
        raise DataError(f"--sync {folder}: the folder {unread[0]} cannot be read", hint="name it in .gitignore")
    return os.fsdecode(done.stdout) if done.returncode == 0 else None
