"""A worker module for the tests: does what a request asks for."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STATE: dict[str, Any] = {}


def load(settings: dict[str, Any]) -> None:
    if settings.get("import"):
        __import__(settings["import"])
    STATE["settings"] = settings


def answer(request: dict[str, Any]) -> Any:
    return globals()["do_" + request["do"]](request)


def do_echo(request: dict[str, Any]) -> Any:
    print("noise on stdout")
    return request["text"]


def do_settings(request: dict[str, Any]) -> Any:
    return STATE["settings"]


def do_remember(request: dict[str, Any]) -> Any:
    STATE["count"] = STATE.get("count", 0) + 1
    return STATE["count"]


def do_sleep(request: dict[str, Any]) -> Any:
    time.sleep(request["pause"])
    return "slept"


def do_spin(request: dict[str, Any]) -> Any:
    return 9**9**9


def do_memory(request: dict[str, Any]) -> Any:
    return len(bytearray(4 << 30))


def do_die(request: dict[str, Any]) -> Any:
    os._exit(3)


def do_raise(request: dict[str, Any]) -> Any:
    raise KeyError("moves")


def do_kill_all(request: dict[str, Any]) -> Any:
    os.kill(-1, 9)


def do_kill_parent(request: dict[str, Any]) -> Any:
    os.kill(os.getppid(), 9)
    return "alive"


def do_fork(request: dict[str, Any]) -> Any:
    try:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    except OSError:
        return "refused"
    return "forked"


def do_connect(request: dict[str, Any]) -> Any:
    try:
        socket.create_connection(("127.0.0.1", request["port"]), 1).close()
    except OSError:
        return "refused"
    return "connected"


def do_read(request: dict[str, Any]) -> Any:
    try:
        return Path(request["path"]).read_text()
    except OSError:
        return None


def do_write(request: dict[str, Any]) -> Any:
    try:
        Path(request["path"]).write_text("x")
    except OSError:
        return False
    return True


def do_leave(request: dict[str, Any]) -> Any:
    """Leave files wherever they can be written, a deep tree among them, and memory that outlives a process."""
    for folder in (os.getcwd(), "/dev/shm", "/tmp", "/var/tmp"):
        if not os.path.lexists(f"{folder}/left") and do_write({"path": f"{folder}/left"}):
            Path(f"{folder}/shut/in").mkdir(parents=True)
            Path(f"{folder}/shut").chmod(0)
            os.chdir(folder)
            for _ in range(1500):
                os.mkdir("deep")
                os.chdir("deep")
    return ctypes.CDLL(None).shmget(0x61747270, 4096, 0o1666)


def do_find_left(request: dict[str, Any]) -> Any:
    folders = (os.getcwd(), "/dev/shm", "/tmp", "/var/tmp")
    names = [f"{folder}/{name}" for folder in folders for name in ("left", "shut", "deep")]
    return [name for name in names if os.path.lexists(name)]


def do_parent_memory(request: dict[str, Any]) -> Any:
    try:
        Path(f"/proc/{os.getppid()}/mem").open("rb").close()
    except OSError:
        return "refused"
    return "opened"


def do_uid(request: dict[str, Any]) -> Any:
    return os.getuid()


def do_capabilities(request: dict[str, Any]) -> Any:
    words = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return [int(words[name], 16) for name in ("CapPrm", "CapEff")]


def do_openable(request: dict[str, Any]) -> Any:
    """Which of these paths can be opened for writing; nothing is written."""
    found = []
    for path in request["paths"]:
        try:
            os.close(os.open(path, os.O_WRONLY))
        except OSError:
            continue
        found.append(path)
    return found


def _leads_somewhere(pid: str, fd: str) -> bool:
    try:
        return bool(os.readlink(f"/proc/{pid}/fd/{fd}"))
    except OSError:
        return False


def do_others(request: dict[str, Any]) -> Any:
    """What can be read of other processes: environments, memory, descriptors."""
    found = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        for name in ("environ", "maps"):
            text = do_read({"path": f"/proc/{pid}/{name}"})
            found += [f"{pid}/{name}"] if text else []
        try:
            found += [f"{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd") if _leads_somewhere(pid, fd)]
            # Threads of the kernel have no command line, and no memory either.
            with Path(f"/proc/{pid}/mem").open("rb"):
                found += [f"{pid}/mem"] if do_read({"path": f"/proc/{pid}/cmdline"}) else []
        except OSError:
            continue
    return found


def do_hash(request: dict[str, Any]) -> Any:
    return list({"a", "b", "c", "d", "e", "f"})


def do_flood(request: dict[str, Any]) -> Any:
    return "x" * (8 << 20)


def do_environment(request: dict[str, Any]) -> Any:
    return dict(os.environ)
