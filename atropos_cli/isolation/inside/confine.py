"""What the process of a worker gives up: its capabilities, system calls, and what others of its user own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from atropos_cli.isolation.inside import landlock, linux, seccomp


def give_up_privileges() -> None:
    """No capabilities and no way to gain any; children cannot read or change this process, and orphans come to it."""
    if linux.supported():
        linux.drop_capabilities()
    linux.set_dumpable(False)
    linux.become_subreaper()
    linux.forbid_new_privileges()


def apart_from_others(readable: Sequence[str], writable: Sequence[str], own_user: bool) -> bool:
    """Where there is no view of our own: see no more files than these, and no memory of the user's other processes.

    By Landlock where the kernel has it; without it a user namespace of our own, or a user id of our own, keeps
    processes apart, and all files of the user stay readable. False when nothing does. Before give_up_privileges().
    """
    if landlock.version():
        linux.forbid_new_privileges()
        landlock.restrict(readable, writable)
        return True
    return own_user or own_namespace() is None


def own_namespace() -> OSError | None:
    """Enter a user namespace of our own, in which we keep our ids; the reason where that is not possible."""
    try:
        linux.map_ourselves(linux.NEWUSER, os.geteuid(), os.getegid())
    except OSError as error:
        return error
    return None


def forbid_calls() -> None:
    """From now on this process gets EPERM from calls that no answer needs. Not on machines of other kinds."""
    if linux.supported():
        with contextlib.suppress(OSError):
            seccomp.install(seccomp.answering())
