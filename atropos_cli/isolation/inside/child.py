"""The program's own process: descriptors, limits and confinement, then the source as a code object."""

from __future__ import annotations

import atexit
import builtins
import os
import signal
import socket
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from atropos_cli.isolation.child import WorkerChannel
from atropos_cli.isolation.inside import limits, view

FILENAME = "program.py"
MOST_BYTES = 64 << 20

_state = {"started": False}


# Programs in which something may happen while the interpreter takes its objects apart.
_FINALIZERS = (b"__del__", b"yield", b"weakref", b"async", b"finali", b"ctypes", b"gc.")


class Program:
    """What the top level of the interpreter is to run.

    needs_finalization: run the interpreter's whole shutdown. It costs as much as all else together
    and does nothing that can be seen, for a program without finalizers.
    """

    def __init__(self, code: types.CodeType, namespace: dict[str, Any], source: bytes) -> None:
        self.code = code
        self.namespace = namespace
        self.needs_finalization = any(word in source for word in _FINALIZERS)


def run_and_leave(program: Program) -> NoReturn:
    """Run it and end the process as the interpreter would: threads, atexit, flushed streams, exit status."""
    status, interrupted = 0, False
    try:
        exec(program.code, program.namespace)  # noqa: S102 - this is what the sandbox is for
    except SystemExit as error:
        status = _exit_status(error.code)
    except BaseException as error:  # noqa: BLE001 - uncaught: printed, as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
        status, interrupted = 1, isinstance(error, KeyboardInterrupt)
    try:
        threads = sys.modules.get("threading")
        if threads is not None:
            threads._shutdown()
        atexit._run_exitfuncs()
    except BaseException as error:  # noqa: BLE001 - the same
        sys.excepthook(type(error), error, error.__traceback__)
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - what was written cannot be kept
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
        status = status or 120
    try:
        if sys.stderr is not None and not sys.stderr.closed:
            sys.stderr.flush()
    finally:
        if interrupted:
            # As Python does, so that who waits sees why.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(status & 0xFF)


def _exit_status(code: object) -> int:
    """The status of sys.exit(code): a number is one, None is 0, anything else is printed and means 1."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)  # noqa: T201
    return 1


def started() -> bool:
    """True in the process of a program."""
    return _state["started"]


def start(
    request: dict[str, Any], fds: dict[str, int], phase: int, confine: Callable[[dict[str, Any]], None], roles: Any
) -> Program:
    """Become the program, or what plays a role: a function of the module `roles`, which ends the process.

    A trusted role gets the payload and its open files, others the compiled program and a namespace for it; both get
    a channel over the file "link", to another process.
    The phase pipe hears "ok" once the source has compiled, or "syntax: why".
    """
    _state["started"] = True
    role = getattr(roles, request["role"]) if request["role"] else None
    try:
        kept = _arrange(fds, phase)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        folder = request.get("folder") or view.WORK
        os.chdir(folder)
        os.environ["HOME"] = os.environ["TMPDIR"] = folder
        _limit(request["limits"])
        confine(request)
        payload = _read(kept.pop("payload"))
        link = kept.pop("link", None)
        channel = WorkerChannel(socket.socket(fileno=link), MOST_BYTES) if link is not None else None
        if role is not None and request["trusted"]:
            os.write(kept["phase"], b"ok")
            os.close(kept.pop("phase"))
            role(payload, kept, channel)
            os._exit(0)
        code = _compile(payload, kept["phase"])
        os.close(kept.pop("phase"))
    except BaseException as error:  # noqa: BLE001 - nothing may run with half of its confinement
        os.write(2, f"the sandbox could not start the program: {type(error).__name__}: {error}\n".encode())
        os._exit(125)
    namespace = _fresh_main("solution" if request["role"] else "__main__")
    if role is not None:
        role(code, namespace, channel)
        os._exit(0)
    return Program(code, namespace, payload)


def _arrange(fds: dict[str, int], phase: int) -> dict[str, int]:
    """Standard streams to 0, 1, 2; close every other descriptor but those the process is to keep."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(fds.pop(name), number)
    kept = {**fds, "phase": phase}
    low = 3
    for fd in sorted(kept.values()):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, 256)
    for fd in kept.values():
        os.set_inheritable(fd, False)
    return kept


def _limit(settings: dict[str, Any]) -> None:
    allowed = settings["processes"] + settings.get("processes_of_user", 0) if settings["processes"] > 0 else None
    limits.apply(
        memory=settings["memory_mb"] << 20, cpu_s=int(settings["timeout_s"]) + 1, file=settings["file_mb"] << 20,
        open_files=settings["open_files"], processes=allowed,
    )  # fmt: skip


def _read(fd: int) -> bytes:
    chunks = []
    os.lseek(fd, 0, os.SEEK_SET)
    while chunk := os.read(fd, 1 << 20):
        chunks.append(chunk)
    os.close(fd)
    return b"".join(chunks)


def _compile(source: bytes, phase: int) -> types.CodeType:
    try:
        with open(FILENAME, "wb") as file:  # noqa: PTH123 - os only, this module is loaded in every sandbox
            file.write(source)
    except OSError:
        # It serves tracebacks and `inspect` only.
        os.write(2, b"the program's file could not be written\n")
    try:
        # Bytes, so that a byte-order mark or a coding line means what it means in a file.
        code = compile(source, FILENAME, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
        os.write(phase, f"syntax: {type(error).__name__}: {error}".encode("utf-8", "replace")[:2000])
        os._exit(1)
    os.write(phase, b"ok")
    return code


def _fresh_main(name: str) -> dict[str, Any]:
    """The namespace of a module that knows nothing of the sandbox's own modules."""
    module = types.ModuleType(name)
    module.__dict__.update({"__builtins__": builtins, "__file__": FILENAME, "__spec__": None})
    # The sandbox's own modules stay loaded where they are used, but nobody finds them by name.
    for loaded in [key for key in sys.modules if key.startswith("atropos_")]:
        del sys.modules[loaded]
    sys.modules[name] = module
    sys.modules["__main__"] = module
    sys.argv[:] = [FILENAME]
    return module.__dict__
