"""The file system that a sandboxed program sees: Python and the system's libraries, read-only, and nothing else."""

# os alone: this module is loaded in every sandbox. The /tmp here is the one inside.
# ruff: noqa: PTH102, PTH103, PTH106, PTH112, PTH114, PTH115, PTH120, PTH211, S108

from __future__ import annotations

import os

from atropos_cli.isolation.inside import linux

WORK = "/box"
"""The one writable folder: the program's working directory, its home and its place for temporary files."""

DEVICES = ("null", "zero", "full", "random", "urandom")


def hides_tmp(paths: list[str]) -> bool:
    """Whether /tmp can stand for the work folder; not when Python itself is installed below it."""
    return not any(path.startswith("/tmp/") for path in paths)


def enter(paths: list[str]) -> None:
    """Build the view of these paths in this process's mount namespace and make it the root. Raises OSError.

    The work folder is empty, and /proc is the machine's: each run mounts its own over them.
    """
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("tmpfs", "/tmp", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=1m,mode=755")
    os.mkdir("/tmp/.old")
    linux.pivot_root("/tmp", "/tmp/.old")
    os.chdir("/")
    for path in paths:
        _show("/.old", path)
    for folder in (WORK, "/proc", "/dev", "/var"):
        os.makedirs(folder, exist_ok=True)
    # The kernel lets us mount a new /proc only while a whole one is in sight.
    linux.bind("/.old/proc", "/proc", read_only=False)
    for device in DEVICES:
        os.close(os.open(f"/dev/{device}", os.O_CREAT | os.O_WRONLY))
        linux.bind(f"/.old/dev/{device}", f"/dev/{device}", read_only=False)
    links = {
        "/dev/fd": "/proc/self/fd",
        "/dev/stdin": "/proc/self/fd/0",
        "/dev/stdout": "/proc/self/fd/1",
        "/dev/stderr": "/proc/self/fd/2",
        "/dev/shm": WORK,
        "/var/tmp": WORK,
    }
    if hides_tmp(paths):
        links["/tmp"] = WORK
    for link, target in links.items():
        os.symlink(target, link)
    linux.unmount("/.old")
    os.rmdir("/.old")
    linux.mount("none", "/", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID)


def _show(old: str, path: str) -> None:
    if os.path.islink(old + path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(os.readlink(old + path), path)
    elif os.path.isdir(old + path):
        os.makedirs(path, exist_ok=True)
        linux.bind(old + path, path)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        linux.bind(old + path, path)


def private_folders(size_mb: int) -> None:
    """A fresh work folder of limited size, and a /proc of this process's own namespace, for one run."""
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", WORK, "tmpfs", flags, f"size={size_mb}m,mode=1777,nr_inodes=20000")
    try:
        linux.mount("proc", "/proc", "proc", flags | linux.MS_NOEXEC)
        # What belongs to the whole machine.
        linux.bind("/proc/sys", "/proc/sys")
    except OSError:
        # Containers that hide parts of /proc do not allow a whole one inside: then none at all.
        linux.mount("tmpfs", "/proc", "tmpfs", flags | linux.MS_RDONLY, "size=4k")
