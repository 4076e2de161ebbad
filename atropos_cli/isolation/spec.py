"""What an isolated worker is made of, how it can be shut in here, and how it fails."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from atropos_cli.errors import AtroposError

Level = Literal["namespaces", "bubblewrap", "process"]
Isolation = Literal["auto", "bubblewrap", "process", "unprotected"]

_OWN_USERS = 1_900_000_000
_WEAKER = ("process", "unprotected")
_accepted: set[str] = set()


def id_map() -> list[tuple[int, int, int]]:
    """(first id here, first id outside, count) of the user ids of our namespace; in a container not all there are."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return [(0, 0, 2**32 - 1)]
    return [(int(first), int(outside), int(count)) for first, outside, count in map(str.split, lines)]


def is_machine_root() -> bool:
    """Whether we have the user id that may change the machine. Root of a rootless container has another one outside."""
    return os.getuid() == 0 and all(outside == 0 for first, outside, _ in id_map() if first == 0)


def own_user_id() -> int:
    """A user id that is not in use: above those of people, services and containers, or the highest that there are."""
    chance = int.from_bytes(os.urandom(3), "big")
    first, _, count = max(id_map(), key=lambda line: line[0] + line[2])
    end = first + count
    return _OWN_USERS + chance if end > _OWN_USERS + (1 << 24) else max(first, end - 10 - chance % 1000)


def accept_isolation(level: str) -> str:
    """Note that the user asked for a level in this process, as an option of an environment; the level."""
    _accepted.add(level)
    return level


def stored_isolation(level: object) -> str:
    """The level for a stored task that names one. What weakens the box counts only where the user asked for it."""
    return level if isinstance(level, str) and (level not in _WEAKER or level in _accepted) else "auto"


HINT = (
    "apt-get install bubblewrap, and let others read the installation of Python (chmod o+x on the folders above it); "
    "--isolation unprotected, an option of environments, accepts that code inside can reach what this user can"
)


class WorkerError(AtroposError):
    """An isolated worker gave no answer. `type` is the exception's name where the module itself failed."""

    def __init__(self, message: str, *, hint: str | None = None, type: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.type = type


class WorkerTimeout(WorkerError):
    """The deadline passed; the process that was to answer was killed."""


class WorkerMemory(WorkerError):
    """The memory limit was reached."""


class WorkerCrashed(WorkerError):
    """The process that was to answer died, or none could be started. killed: by us, for another call's sake."""

    killed = False


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker is made of.

    name: for messages. module: path of a file with load(settings) and answer(request); it must not import
    atropos. settings: JSON text for load(). show: folders to see and to import from, besides Python's own.
    isolation: "auto" takes the best that protects; "unprotected" is level process even where code inside could
    reach what this user can, or is root. memory_mb: for one request, beyond what the module takes.
    most: requests that are answered at the same time; further ones wait.
    """

    name: str
    module: str
    settings: str = "{}"
    show: tuple[str, ...] = ()
    isolation: Isolation = "auto"
    memory_mb: int = 1024
    most: int = 4
    start_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Way:
    """A way to shut a process in.

    user: "own" starts it as a user that no other process has, "inside" lets it become one in the box, "same" is ours.
    unprotected: also where nothing keeps code inside from what we can reach.
    """

    level: Level
    user: Literal["own", "inside", "same"] = "same"
    unprotected: bool = False


def ways(wanted: str, levels: Sequence[Level] = ("bubblewrap", "process")) -> Iterator[Way]:
    """Best first. Root's own user id does not count: the kernel lets it change the machine, whatever the box."""
    root = is_machine_root()
    for level in levels:
        if wanted not in ("auto", level) and (wanted, level) != ("unprotected", "process"):
            continue
        # Starting as another user works where everybody may read the installation of Python.
        if level != "namespaces":
            yield Way(level, "own" if root else "same")
        if level != "process" and (root or level == "namespaces"):
            yield Way(level, "inside" if root else "same")
    if wanted == "unprotected":
        yield Way("process", unprotected=True)
