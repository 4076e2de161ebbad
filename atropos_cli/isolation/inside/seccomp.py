"""Seccomp filters: system calls that a program, or who answers a request, has no business with fail with EPERM.

It works without privileges and without namespaces, and closes what limits cannot: the network,
tracing other processes, signals to processes outside, memory that no limit counts.
"""

from __future__ import annotations

import ctypes
import struct

from atropos_cli.isolation.inside import linux

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# name: (x86_64, aarch64); 0 where the machine has no such call.
_DENIED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "mount_setattr": (442, 442), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "open_by_handle_at": (304, 265), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "quotactl": (179, 60),
    "swapon": (167, 224), "reboot": (169, 142), "sethostname": (170, 161), "setdomainname": (171, 162),
    "acct": (163, 89), "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "msgget": (68, 186), "semget": (64, 190),
}  # fmt: skip
_FOREIGN_SIGNALS = {
    "pidfd_send_signal": (424, 424), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "tkill": (200, 130),
}  # fmt: skip
_PROGRAMS = {"execve": (59, 221), "execveat": (322, 281), "mq_open": (240, 180)}
_KILL, _TGKILL, _SOCKET = (62, 129), (234, 131), (41, 198)
_CLONE, _CLONE3, _FORK, _VFORK = (56, 220), (435, 435), (57, 0), (58, 0)

_NAMESPACES = 0x7E020080
_THREAD = 0x00010000
_AF_UNIX = 1

_ALLOW, _KILL_PROCESS, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
_LOAD, _EQUAL, _GREATER_EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARG0 = 0, 4, 16


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value & 0xFFFFFFFF)


def _on_first_argument(number: int, *tests: bytes, then: int) -> bytes:
    """For one call, look at its first argument: `tests` end with a return or fall through to `then`."""
    body = _step(_LOAD, _ARG0) + b"".join(tests) + _step(_RETURN, then)
    # Over the body when it is another call. The body always returns, so nr need not be loaded again.
    return _step(_EQUAL, number, 0, len(body) // 8) + body


def _allow_if(code: int, value: int) -> bytes:
    return _step(code, value, 0, 1) + _step(_RETURN, _ALLOW)


def _deny_if(code: int, value: int) -> bytes:
    return _step(code, value, 0, 1) + _step(_RETURN, _EPERM)


def program(*, unix_sockets: bool, processes: bool, own_pid: int | None) -> bytes:
    """The filter as instructions.

    unix_sockets: allow sockets within the machine. processes: allow starting processes (threads
    always are). own_pid: allow signals to this process and its group only; None allows all.
    """
    which = 0 if linux.MACHINE == "x86_64" else 1
    steps = _step(_LOAD, _ARCH) + _step(_EQUAL, _AUDIT[linux.MACHINE], 1, 0) + _step(_RETURN, _KILL_PROCESS)
    steps += _step(_LOAD, _NR)
    if which == 0:
        # The x32 interface has numbers of its own for the same calls.
        steps += _step(_GREATER_EQUAL, 0x40000000, 0, 1) + _step(_RETURN, _EPERM)
    denied = [numbers[which] for numbers in _DENIED.values()]
    if own_pid is not None:
        denied += [numbers[which] for numbers in _FOREIGN_SIGNALS.values()]
    if not processes:
        denied += [number for number in (_FORK[which], _VFORK[which]) if number]
    for number in denied:
        steps += _step(_EQUAL, number, 0, 1) + _step(_RETURN, _EPERM)
    steps += _step(_EQUAL, _CLONE3[which], 0, 1) + _step(_RETURN, _ENOSYS)
    in_clone = _deny_if(_ANY_BIT, _NAMESPACES)
    steps += (
        _on_first_argument(_CLONE[which], in_clone, then=_ALLOW)
        if processes
        else _on_first_argument(_CLONE[which], in_clone, _allow_if(_ANY_BIT, _THREAD), then=_EPERM)
    )
    local = (_allow_if(_EQUAL, _AF_UNIX),) if unix_sockets else ()
    steps += _on_first_argument(_SOCKET[which], *local, then=_EPERM)
    if own_pid is not None:
        own = _allow_if(_EQUAL, own_pid)
        steps += _on_first_argument(_KILL[which], own, _allow_if(_EQUAL, 0), then=_EPERM)
        steps += _on_first_argument(_TGKILL[which], own, then=_EPERM)
    return steps + _step(_RETURN, _ALLOW)


def answering() -> bytes:
    """The filter of a process that only computes an answer: no processes, programs, signals or sockets."""
    which = 0 if linux.MACHINE == "x86_64" else 1
    steps = _step(_LOAD, _ARCH) + _step(_EQUAL, _AUDIT[linux.MACHINE], 1, 0) + _step(_RETURN, _EPERM)
    steps += _step(_LOAD, _NR) + _step(_GREATER_EQUAL, 0x40000000, 0, 1) + _step(_RETURN, _EPERM)
    # Libraries may take memory by memfd_create; here it counts against the limit of the address space.
    calls = [numbers for name, numbers in _DENIED.items() if name != "memfd_create"]
    calls += [*_PROGRAMS.values(), *_FOREIGN_SIGNALS.values(), _KILL, _TGKILL, _SOCKET]
    calls += [_CLONE, _CLONE3, _FORK, _VFORK]
    for number in sorted({numbers[which] for numbers in calls} - {0}):
        steps += _step(_EQUAL, number, 0, 1) + _step(_RETURN, _EPERM)
    return steps + _step(_RETURN, _ALLOW)


def install(instructions: bytes) -> None:
    """Apply to this process and all it starts. Raises OSError where the kernel has no seccomp filters."""
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    fprog = struct.pack("=HxxxxxxQ", len(instructions) // 8, ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(fprog, len(fprog))
    number = {"x86_64": 317, "aarch64": 277}[linux.MACHINE]
    linux.syscall("seccomp", number, ctypes.c_uint(1), ctypes.c_uint(0), ctypes.byref(holder))
