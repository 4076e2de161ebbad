"""What a shut-in Python may see, and the command that shuts it in."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Sequence
from pathlib import Path

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
WORK = "/box"
"""The one writable folder inside, empty at the start and gone at the end."""


def python_folders() -> list[str]:
    """Folders that the interpreter needs: its installation, its virtual environment, its packages."""
    folders = [sys.base_prefix, sys.prefix, sys.base_exec_prefix, sys.exec_prefix, *site.getsitepackages()]
    folders.append(str(Path(sys.executable).resolve().parent))
    # Those that a .pth file or PYTHONPATH adds: an environment may build on another one's packages.
    folders += [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    kept: list[str] = []
    for folder in sorted({os.path.realpath(folder) for folder in folders} | set(folders), key=len):
        inside = any(folder == outer or folder.startswith(outer.rstrip("/") + "/") for outer in (*SYSTEM, *kept))
        if folder != "/" and not inside and Path(folder).is_dir():
            kept.append(folder)
    return kept


def readable_paths() -> list[str]:
    """All paths outside /dev, /proc and /tmp that Python inside may read; those that exist."""
    return [path for path in (*SYSTEM, *FILES, *python_folders()) if os.path.lexists(path)]


def guard_file() -> str:
    """A file for processes of one's own in which libraries read a model's text: load it by path, call its watch().

    From then on that process evaluates nothing but harmless expressions; `reasons` holds why others were refused.
    """
    return str(Path(__file__).with_name("inside") / "guard.py")


def hides_tmp(paths: Sequence[str]) -> bool:
    """Whether /tmp can stand for the work folder; not when something that must be seen lies below it."""
    return not any(path.startswith("/tmp/") for path in paths)  # noqa: S108 - the folder inside


def bubblewrap_command(
    program: str, paths: Sequence[str], options: Sequence[str] = (), *, changes_user: bool = False
) -> list[str]:
    """The words before the command that is to run shut in; `program` is bwrap's path.

    New namespaces of every kind, no capabilities; of the file system `paths`, read-only, and an empty WORK.
    changes_user: for root, whose user namespace would map root itself. There is none then, and the command is
    left with what it needs to become another user, which is the first thing that it must do.
    """
    spaces = ["--unshare-all", "--unshare-user", "--cap-drop", "ALL"]
    if changes_user:
        spaces = [f"--unshare-{kind}" for kind in ("ipc", "pid", "net", "uts", "cgroup-try")]
        spaces += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    # bwrap makes parents of what is shown for its own user only.
    shown = [word for folder in _parents(paths) for word in ("--dir", folder)]
    for path in paths:
        if Path(path).is_symlink():
            shown += ["--symlink", str(Path(path).readlink()), path]
        else:
            shown += ["--ro-bind", path, path]
    # No --die-with-parent: it means the parent thread, and threads come and go.
    # Sizes bound what a program can put into memory by way of files.
    return [
        program, *spaces, "--new-session", *options, *shown, "--proc", "/proc", *_covers(), "--dev", "/dev",
        "--size", str(64 << 20), "--tmpfs", WORK,
        *(["--symlink", WORK, "/tmp"] if hides_tmp(paths) else []),  # noqa: S108
        "--size", str(16 << 20), "--tmpfs", "/dev/shm", "--remount-ro", "/",  # noqa: S108
        "--chdir", "/", "--",
    ]  # fmt: skip


def _parents(paths: Sequence[str]) -> list[str]:
    """The folders above what is shown, outermost first, that are not shown themselves."""
    above = {str(folder) for path in paths for folder in Path(path).parents if str(folder) != "/"}
    return sorted(
        folder for folder in above if not any(folder == path or folder.startswith(f"{path}/") for path in paths)
    )


def _covers() -> list[str]:
    """What of /proc belongs to the whole machine, read-only: a process there may have root's user id."""
    covered = (f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "fs"))
    return [word for path in covered if Path(path).exists() for word in ("--ro-bind", path, path)]
