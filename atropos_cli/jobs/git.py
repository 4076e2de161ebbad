"""What git says of a folder: its files without the ignored ones, its commit, and its uncommitted changes.

Nothing of the repository is executed (no hooks, no external diff, no file system monitor), and nothing is written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from atropos_cli.errors import LaunchError

_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "core.hooksPath=/dev/null")
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
    changed = _git(folder, "status", "--porcelain", "--", ".")
    if not changed:
        return GitSays(commit.strip())
    stat = _git(folder, "diff", "--stat=100", "--no-ext-diff", "--no-textconv", "HEAD", "--", ".") or ""
    lines = stat.rstrip("\n").splitlines()
    if len(lines) > _DIFF_LINES:
        lines = [*lines[: _DIFF_LINES - 1], lines[-1]]
    new = sum(line.startswith("??") for line in changed.splitlines())
    lines += [f" {new} new, not in git"] if new else []
    return GitSays(commit.strip(), changed=True, diff="\n".join(lines))


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
    with tempfile.TemporaryDirectory(prefix="atropos-") as empty:
        if _git(folder, "init", "-q", "--bare", "--template=", empty) is None:
            raise LaunchError("--sync: git cannot list the files", hint="try: git init in the folder")
        return _with(folder, f"--git-dir={empty}", f"--work-tree={folder}")


def _with(folder: Path, *where: str) -> tuple[list[str], list[str]]:
    text = _git(folder, "ls-files", "-z", "-co", "--exclude-standard", where=where)
    left = _git(folder, "ls-files", "-z", "-oi", "--exclude-standard", "--directory", where=where)
    if text is None or left is None:
        raise LaunchError(f"--sync {folder}: git cannot list its files", hint="try: git status in the folder")
    names: list[str] = []
    ignored = [name for name in left.split("\0") if name]
    for name in text.split("\0"):
        if not name:
            continue
        if not (folder / name).is_dir() or (folder / name).is_symlink():
            names.append(name)
            continue
        inner, inner_ignored = listed(folder / name)  # a repository within, a submodule or not
        names += [f"{name.rstrip('/')}/{path}" for path in inner]
        ignored += [f"{name.rstrip('/')}/{path}" for path in inner_ignored]
    git = [".git/"] if (folder / ".git").exists() else []
    return [name for name in names if ".git" not in name.split("/")], [*git, *ignored]


def _walked(folder: Path) -> list[str]:
    found = []
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        folders[:] = [name for name in folders if name not in (".git", "__pycache__", *links)]
        found += [os.path.relpath(Path(place, name), folder) for name in (*files, *links)]
    return found


def _git(folder: Path, *words: str, where: tuple[str, ...] = ()) -> str | None:
    """What git prints; None where it fails."""
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
    return os.fsdecode(done.stdout) if done.returncode == 0 else None
