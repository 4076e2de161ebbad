"""The program's own process: descriptors, limits and confinement, then the source as a code object."""

from __future__ import annotations

import atexit
import builtins
import json
import os
import resource
import signal
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from atropos_code.inside import judge, remote, view

FILENAME = "program.py"

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
    request: dict[str, Any], fds: dict[str, int], phase: int, confine: Callable[[dict[str, Any]], None]
) -> Program:
    """Become the program. The phase pipe hears "ok" once the source has compiled, or "syntax: why"."""
    _state["started"] = True
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
        if request["kind"] == "tests":
            os.write(kept["phase"], b"ok")
            os.close(kept["phase"])
            _judge(payload, kept)
        code = _compile(payload, kept["phase"])
        os.close(kept["phase"])
    except BaseException as error:  # noqa: BLE001 - nothing may run with half of its confinement
        os.write(2, f"the sandbox could not start the program: {type(error).__name__}: {error}\n".encode())
        os._exit(125)
    namespace = _fresh_main("__main__" if request["kind"] == "program" else "solution")
    if request["kind"] == "solution":
        remote.serve(code, namespace, kept["link"])
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


def _limit(limits: dict[str, Any]) -> None:
    cpu = int(limits["timeout_s"]) + 1
    values = {
        resource.RLIMIT_AS: limits["memory_mb"] << 20,
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_FSIZE: limits["file_mb"] << 20,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for kind, value in values.items():
        resource.setrlimit(kind, (value, value))
    if limits["processes"] > 0:
        count = limits["processes"] + limits.get("processes_of_user", 0)
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        count = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (count, count))


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
    for loaded in [key for key in sys.modules if key.startswith("atropos_code")]:
        del sys.modules[loaded]
    sys.modules[name] = module
    sys.modules["__main__"] = module
    sys.argv[:] = [FILENAME]
    return module.__dict__


def _judge(payload: bytes, kept: dict[str, int]) -> NoReturn:
    judge.run(json.loads(payload), kept["link"], kept["verdict"])
    os._exit(0)
