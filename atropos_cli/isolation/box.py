"""Boxes: each runs one untrusted program at a time, in a fork of a warm process; and pools of them.

    pool = BoxPool(lambda hash_seed: Box(Way("namespaces"), hash_seed=hash_seed))
    with pool.lease() as (box,), memory_files({"payload": b"print(1)", ...}) as files:
        box.send(files, limits)
        how = box.answer(limits["timeout_s"])

Use from threads: a box belongs to one thread while it is leased.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from atropos_cli.isolation import child
from atropos_cli.isolation.inside import landlock, zygote
from atropos_cli.isolation.shutin import ShutIn
from atropos_cli.isolation.spec import Way, WorkerCrashed

T = TypeVar("T")
START_S = 20.0
GRACE_S = 5.0
"""Seconds after a run's own deadline until its box is taken for lost."""
_TRIES = 3


class BoxLost(WorkerCrashed):
    """The box's own process ended or does not answer."""


class BoxClosed(Exception):
    """The pool was closed."""


class Box(ShutIn):
    """A warm process that forks for each run. A `lost` one must be closed and replaced."""

    def __init__(
        self, way: Way, *, hash_seed: int = 0, roles: Path | None = None, use_landlock: bool | None = None
    ) -> None:
        """Start it. Raises OSError.

        roles: a file PACKAGE/FOLDER/NAME.py with functions that send() names; they are imported before the box is
        shut, and may import what is beside them. use_landlock: None asks the kernel.
        """
        package = roles.parent.parent if roles is not None else None
        name = ".".join([*roles.parts[-3:-1], roles.stem]) if roles is not None else ""
        settings = {
            "roles": name,
            "folders": [str(package.parent)] if package is not None else [],
            "landlock": landlock.version() > 0 if use_landlock is None else use_landlock,
        }
        show = [str(package)] if package is not None and way.level == "bubblewrap" else []
        super().__init__(way, zygote.BOOT, settings, show=show, hash_seed=hash_seed)
        self.hash_seed = hash_seed
        self.single_use = way.level == "bubblewrap"
        self.lost = False
        self.features: tuple[str, ...] = ()

    def wait_ready(self, seconds: float = START_S) -> dict[str, Any]:
        """Block until it can run programs. Raises WorkerCrashed with the reason when it never will."""
        if not self.ready:
            self.features = tuple(super().wait_ready(seconds)["features"])
        return {}

    def send(
        self,
        files: Mapping[str, int],
        limits: Mapping[str, Any],
        *,
        folder: str | None = None,
        role: str = "",
        trusted: bool = False,
    ) -> None:
        """Start a run with these open files: payload (a program), stdin, stdout, stderr and what the role needs.

        trusted: the payload is data for a role of ours, and no process may look into that one. Raises BoxLost.
        """
        request = {"role": role, "trusted": trusted, "limits": dict(limits), "fds": list(files), "folder": folder}
        self._send(request, list(files.values()))
        if self.single_use:
            self.lost = True

    def stop(self) -> None:
        """End the run in progress; its answer still comes."""
        with contextlib.suppress(BoxLost):
            self._send({"stop": True}, [])

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """How the run ended. Raises BoxLost, and WorkerCrashed when it could not start."""
        self._connection.settimeout(timeout_s + GRACE_S)
        try:
            answer = child.receive(self.incoming)
            problem = "its process ended"
        except (OSError, child.NotAMessage) as error:
            answer, problem = None, f"{type(error).__name__}: {error}"
        if answer is None:
            self.lost = True
            raise BoxLost(problem)
        if "error" in answer:
            raise WorkerCrashed(f"the sandbox could not start a program: {answer['error']}")
        return answer

    def _send(self, message: dict[str, Any], files: list[int]) -> None:
        try:
            child.send_with_files(self._connection, message, files)
        except OSError as error:
            self.lost = True
            raise BoxLost(str(error)) from None

    def close(self) -> None:
        """End the box and everything in it. Safe to call again."""
        self.lost = True
        grace = 0.0 if self.way.level == "namespaces" else GRACE_S if self.ready else START_S
        self.end(grace)
        self.close_log()


class BoxPool:
    """Boxes by hash seed, each started when it is needed, kept, and replaced when it is lost. Safe for threads."""

    def __init__(self, start: Callable[[int], Box]) -> None:
        self._start = start
        self._idle: dict[int, list[Box]] = {}
        self._lock = threading.Lock()
        self._closed = False

    @contextlib.contextmanager
    def lease(self, count: int = 1, *, hash_seed: int = 0) -> Iterator[list[Box]]:
        """Boxes of one's own, ready. Raises WorkerCrashed and BoxClosed."""
        taken: list[Box] = []
        try:
            for _ in range(count):
                taken.append(self._take(hash_seed))
                taken[-1].wait_ready()
            yield taken
        finally:
            for box in taken:
                self._give(box)

    def again(self, job: Callable[[], T]) -> T:
        """What the job gives. A box that is lost says nothing about the program, unless it is lost every time."""
        for _ in range(_TRIES - 1):
            with contextlib.suppress(BoxLost):
                return job()
        try:
            return job()
        except BoxLost as error:
            raise WorkerCrashed(f"the sandbox lost its process {_TRIES} times: {error}") from None

    def idle(self) -> list[Box]:
        """The boxes that wait for a program."""
        with self._lock:
            return [box for idle in self._idle.values() for box in idle]

    def close(self) -> None:
        """End all boxes; leased ones when they are given back."""
        with self._lock:
            self._closed = True
        for box in self.idle():
            box.close()
        self._idle.clear()

    def _take(self, hash_seed: int) -> Box:
        with self._lock:
            if self._closed:
                raise BoxClosed
            idle = self._idle.setdefault(hash_seed, [])
            if idle:
                return idle.pop()
        return self._start(hash_seed)

    def _give(self, box: Box) -> None:
        if not box.ready:
            box.lost = True
        elif box.single_use and not self._closed:
            # Start the next one now: it is ready by the time it is asked for.
            fresh = self._start(box.hash_seed)
            box.close()
            box = fresh
        if not box.lost:
            with self._lock:
                if not self._closed:
                    self._idle.setdefault(box.hash_seed, []).append(box)
                    return
        box.close()


@contextlib.contextmanager
def memory_files(contents: Mapping[str, bytes]) -> Iterator[dict[str, int]]:
    """Unnamed files in memory, one for each name; closed at the end."""
    fds: dict[str, int] = {}
    try:
        for name, data in contents.items():
            fd = fds[name] = os.memfd_create(name)
            os.fchmod(fd, 0o666)
            view_of = memoryview(data)
            while view_of:
                view_of = view_of[os.write(fd, view_of) :]
            os.lseek(fd, 0, os.SEEK_SET)
        yield fds
    finally:
        for fd in fds.values():
            os.close(fd)


@contextlib.contextmanager
def private_folder(box: Box) -> Iterator[str | None]:
    """A folder for one run where the box has none of its own; gone afterwards, whatever is in it."""
    if box.way.level != "process":
        yield None
        return
    folder = tempfile.mkdtemp(prefix="atropos-box-")
    if box.uid is not None:
        os.chown(folder, box.uid, box.uid)
    try:
        yield folder
    finally:
        # rm copes with trees too deep for Python and with folders made unreadable.
        remove = ["rm", "-rf", "--", folder]
        for command in (remove, ["chmod", "-R", "u+rwx", "--", folder], remove):
            if Path(folder).exists():
                subprocess.run(command, stderr=subprocess.DEVNULL, check=False)  # noqa: S603
