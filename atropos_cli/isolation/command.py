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
    kept: list[str] = []
    for folder in sorted({os.path.realpath(folder) for folder in folders} | set(folders), key=len):
        inside = any(folder == outer or folder.startswith(outer.rstrip("/") + "/") for outer in (*SYSTEM, *kept))
        if folder != "/" and not inside and Path(folder).is_dir():
            kept.append(folder)
    return kept


def readable_paths() -> list[str]:
    """All paths outside /dev, /proc and /tmp that Python inside may read; those that exist."""
    return [path for path in (*SYSTEM, *FILES, *python_folders()) if os.path.lexists(path)]


def hides_tmp(paths: Sequence[str]) -> bool:
    """Whether /tmp can stand for the work folder; not when something that must be seen lies below it."""
    return not any(path.startswith("/tmp/") for path in paths)  # noqa: S108 - the folder inside


def bubblewrap_command(program: str, paths: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """The words before the command that is to run shut in; `program` is bwrap's path.

    New namespaces of every kind, no capabilities; of the file system `paths`, read-only, and an empty WORK.
    """
    shown: list[str] = []
    for path in paths:
        if Path(path).is_symlink():
            shown += ["--symlink", str(Path(path).readlink()), path]
        else:
            shown += ["--ro-bind", path, path]
    # No --die-with-parent: it means the parent thread, and threads come and go.
    # Sizes bound what a program can put into memory by way of files.
    return [
        program, "--unshare-all", "--unshare-user", "--new-session", "--cap-drop", "ALL", *options,
        *shown, "--proc", "/proc", "--dev", "/dev", "--size", str(64 << 20), "--tmpfs", WORK,
        *(["--symlink", WORK, "/tmp"] if hides_tmp(paths) else []),  # noqa: S108
        "--size", str(16 << 20), "--tmpfs", "/dev/shm", "--remount-ro", "/",  # noqa: S108
        "--chdir", "/", "--",
    ]  # fmt: skip
