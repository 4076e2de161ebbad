"""Landlock: confine a process to given folders without any privilege (Linux 5.13 and later)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from atropos_cli.isolation.inside import linux

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_ALL_OF_VERSION_1 = (1 << 13) - 1
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE


def version() -> int:
    """The version of the kernel's Landlock; 0 where there is none."""
    try:
        return linux.syscall("landlock", _CREATE, ctypes.c_void_p(None), ctypes.c_size_t(0), ctypes.c_uint(1))
    except OSError:
        return 0


def restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Allow reading under `readable`, anything under `writable`, nothing elsewhere; for good. Raises OSError."""
    number = version()
    handled = _ALL_OF_VERSION_1 | (_REFER if number >= 2 else 0) | (_TRUNCATE if number >= 3 else 0)
    attributes = struct.pack("=Q", handled)
    ruleset = linux.syscall(
        "landlock_create_ruleset", _CREATE, ctypes.c_char_p(attributes), ctypes.c_size_t(8), ctypes.c_uint(0)
    )
    for path in readable:
        _allow(ruleset, path, _EXECUTE | _READ_FILE | _READ_DIR)
    for path in writable:
        _allow(ruleset, path, handled)
    linux.syscall("landlock_restrict_self", _RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint(0))
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - os only, this module is loaded in every sandbox
            access &= _ON_FILES
        rule = struct.pack("=Qi", access, fd)
        linux.syscall(
            "landlock_add_rule",
            _ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(1),
            ctypes.c_char_p(rule),
            ctypes.c_uint(0),
        )
    finally:
        os.close(fd)
