"""What the process of a worker gives up: its user, capabilities, system calls, and what others of its user own.

Loaded by path inside workers; it imports nothing of the rest of the package.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Sequence

_CAPSET = {"x86_64": 126, "aarch64": 91}
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 22, 36, 38
_SECCOMP_MODE_FILTER = 2
_NEWUSER = 0x10000000

# What no answer needs: processes, programs, signals, other processes' memory, sockets, namespaces, mounts, and
# what outlives a process: System V memory, semaphores and queues, message queues, keys.
# clone fork vfork execve execveat clone3 | kill tkill tgkill pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo |
# ptrace process_vm_readv process_vm_writev pidfd_getfd | socket io_uring_setup | unshare setns mount |
# bpf perf_event_open userfaultfd | shmget semget msgget mq_open | add_key request_key keyctl
_FORBIDDEN = {
    "x86_64": (
        0xC000003E,
        (56, 57, 58, 59, 322, 435, 62, 200, 234, 424, 129, 297, 101, 310, 311, 438, 41, 425, 272, 308, 165,
         321, 298, 323, 29, 64, 68, 240, 248, 249, 250),
    ),
    "aarch64": (
        0xC00000B7,
        (220, 221, 281, 435, 129, 130, 131, 424, 138, 240, 117, 270, 271, 438, 198, 425, 97, 268, 40,
         280, 241, 282, 194, 190, 186, 180, 217, 218, 219),
    ),
}  # fmt: skip

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1, 2, 4, 8, 1 << 14
_ALL_OF_VERSION_1 = (1 << 13) - 1
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def become(uid: int, folders: Sequence[str]) -> None:
    """Be another user from now on; `folders` of ours stay writable. Raises OSError. Needs root's capabilities."""
    for folder in folders:
        os.chmod(folder, 0o1777)  # noqa: PTH101, S103 - in a box of our own
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def give_up_privileges() -> None:
    """No capabilities and no way to gain any; children cannot read or change this process, and orphans come to it."""
    if os.uname().machine in _CAPSET:
        header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        _libc.syscall(ctypes.c_long(_CAPSET[os.uname().machine]), header, data)
    for option, value in ((_PR_SET_DUMPABLE, 0), (_PR_SET_CHILD_SUBREAPER, 1), (_PR_SET_NO_NEW_PRIVS, 1)):
        _libc.prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)


def apart_from_others(readable: Sequence[str], writable: Sequence[str], own_user: bool) -> bool:
    """Where there is no view of our own: see no more files than these, and no memory of the user's other processes.

    By Landlock where the kernel has it; without it a user namespace of our own, or a user id of our own, keeps
    processes apart, and all files of the user stay readable. False when nothing does. Before give_up_privileges().
    """
    if _landlock_version():
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3)
        _restrict(readable, writable)
        return True
    return own_user or _own_namespace()


def _own_namespace() -> bool:
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(_NEWUSER) != 0:
        return False
    with contextlib.suppress(OSError):
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            _write(f"/proc/self/{name}", text)
        return True
    return False


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _landlock_version() -> int:
    number = _libc.syscall(ctypes.c_long(_CREATE), ctypes.c_void_p(None), ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(0, int(number))


def _restrict(readable: Sequence[str], writable: Sequence[str]) -> None:
    """Landlock: read under `readable`, anything under `writable`, nothing elsewhere. Raises OSError."""
    version = _landlock_version()
    handled = _ALL_OF_VERSION_1 | (1 << 13 if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    attributes = ctypes.c_char_p(struct.pack("=Q", handled))
    ruleset = _call(_CREATE, attributes, ctypes.c_size_t(8), ctypes.c_uint(0))
    for access, paths in ((_EXECUTE | _READ_FILE | _READ_DIR, readable), (handled, writable)):
        for path in paths:
            _allow(ruleset, path, access)
    _call(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint(0))
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112
            access &= _ON_FILES
        rule = ctypes.c_char_p(struct.pack("=Qi", access, fd))
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0))
    finally:
        os.close(fd)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"landlock: {os.strerror(ctypes.get_errno())}")
    return result


def forbid_calls() -> None:
    """From now on this process gets EPERM from calls that it has no use for. Not on machines of other kinds."""
    arch, numbers = _FORBIDDEN.get(os.uname().machine, (0, ()))
    if not numbers:
        return
    load, equal, above, give = 0x20, 0x15, 0x35, 0x06
    refuse = 0x00050000 | 1
    words = [(load, 0, 0, 4), (equal, 1, 0, arch), (give, 0, 0, refuse), (load, 0, 0, 0)]
    # Numbers with this bit are the same calls by another name.
    words += [(above, 0, 1, 0x40000000), (give, 0, 0, refuse)]
    for number in numbers:
        words += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    words.append((give, 0, 0, 0x7FFF0000))
    code = b"".join(struct.pack("=HBBI", *word) for word in words)

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    program = Filter(len(words), code)
    _libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(program))
