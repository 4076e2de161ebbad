"""Linux calls that the standard library of Python 3.11 lacks: namespaces, mounts, capabilities, prctl."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from typing import Any

NEWNS = 0x00020000
NEWUTS = 0x04000000
NEWIPC = 0x08000000
NEWUSER = 0x10000000
NEWPID = 0x20000000
NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_AT_RECURSIVE, _ATTR_RDONLY, _ATTR_NOSUID = 0x8000, 1, 2

MACHINE = platform.machine()
_CLONE = {"x86_64": 56, "aarch64": 220}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442

# PyDLL keeps the interpreter's lock: a raw clone() must not return in the child without it.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(what: str, number: int, *arguments: Any) -> int:
    """A raw system call. Raises OSError with `what` in the message."""
    return _checked(_libc.syscall(ctypes.c_long(number), *arguments), what)


def unshare(flags: int) -> None:
    """Move this process to new namespaces. Raises OSError."""
    _checked(_libc.unshare(flags), "unshare")


def clone(flags: int) -> int:
    """fork() into new namespaces: 0 in the child. The caller must be single-threaded.

    The child skips Python's and the C library's fork handlers, so it should do little but fork again.
    """
    zero = ctypes.c_long(0)
    return syscall("clone", _CLONE[MACHINE], ctypes.c_long(flags | signal.SIGCHLD), zero, zero, zero, zero)


def map_ourselves(flags: int, uid: int, gid: int) -> None:
    """New namespaces, one of users among them, in which this process has these ids. Raises OSError."""
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    unshare(flags)
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{uid} {outer_uid} 1")
    write("/proc/self/gid_map", f"{gid} {outer_gid} 1")


def write(path: str, text: str) -> None:
    """Write to an existing file in one call, as files of /proc need it. Raises OSError."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    """mount(2). Raises OSError that names the target."""
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() if options else None,
    )
    _checked(result, f"mount {target}")


def bind(source: str, target: str, *, read_only: bool = True) -> None:
    """Bind a folder or file with everything mounted below it; read-only all the way down."""
    mount(source, target, None, MS_BIND | MS_REC)
    if not read_only:
        return
    try:
        attributes = (ctypes.c_uint64 * 4)(_ATTR_RDONLY | _ATTR_NOSUID, 0, 0, 0)
        syscall(
            f"mount_setattr {target}",
            _MOUNT_SETATTR,
            ctypes.c_int(-100),
            ctypes.c_char_p(target.encode()),
            ctypes.c_uint(_AT_RECURSIVE),
            ctypes.byref(attributes),
            ctypes.c_size_t(ctypes.sizeof(attributes)),
        )
    except OSError:
        # Before Linux 5.12: one mount at a time, with the flags it is locked to.
        kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
        mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept)


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root folder and show the former root at `old`."""
    syscall("pivot_root", _PIVOT_ROOT[MACHINE], ctypes.c_char_p(new.encode()), ctypes.c_char_p(old.encode()))


def unmount(target: str) -> None:
    """Detach a mount at once, used or not."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def _prctl(option: int, value: int, what: str) -> None:
    zero = ctypes.c_ulong(0)
    _checked(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), what)


def die_with_parent() -> None:
    """Be killed when the parent process ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, "prctl(PDEATHSIG)")


def set_dumpable(yes: bool) -> None:
    """Whether processes of the same user may trace this one or open its /proc/PID/mem."""
    _prctl(_PR_SET_DUMPABLE, int(yes), "prctl(DUMPABLE)")


def become_subreaper() -> None:
    """Orphans among the descendants become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "prctl(CHILD_SUBREAPER)")


def forbid_new_privileges() -> None:
    """No set-user-id program gives this process anything any more. Needed before a seccomp filter."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "prctl(NO_NEW_PRIVS)")


def become(uid: int, folders: list[str]) -> None:
    """Be another user from now on; `folders` of ours stay writable. Raises OSError. Needs root's capabilities."""
    for folder in folders:
        os.chmod(folder, 0o1777)  # noqa: PTH101, S103 - in a box of our own
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def drop_capabilities() -> None:
    """Give up every capability of the current user namespace."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    syscall("capset", _CAPSET[MACHINE], ctypes.byref(header), ctypes.byref(data))


def supported() -> bool:
    """Whether the system call numbers of this machine are known here."""
    return MACHINE in _CLONE and os.uname().sysname == "Linux"
