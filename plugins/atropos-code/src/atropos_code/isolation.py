"""Which isolation this machine allows, best first, and what each level does and does not do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from atropos_cli.sdk.isolation import Box, Level, Way, WorkerError, memory_files, private_folder, ways
from atropos_code.errors import SandboxError
from atropos_code.inside import landlock

LEVELS: tuple[Level, ...] = ("namespaces", "bubblewrap", "process")
CHOICES = ("auto", *LEVELS, "unprotected")
ROLES = Path(landlock.__file__).with_name("roles.py")


@dataclass(frozen=True, slots=True)
class Isolation:
    """A level that works here.

    features: "seccomp", "landlock", "own user namespace". tried: why better levels do not work.
    """

    way: Way
    features: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()

    @property
    def level(self) -> Level:
        """How, in one word."""
        return self.way.level

    @property
    def own_user(self) -> bool:
        """Programs have a user id of their own."""
        return self.way.user != "same"

    @property
    def strong(self) -> bool:
        """The system is read-only, files of the user are not visible, and nothing can outlive a run."""
        return self.level != "process"

    @property
    def can_limit_processes(self) -> bool:
        """Whether the kernel limits how many processes a program starts, which it never does for root's own ones.

        Where it does not, programs cannot start any: nothing else is fast enough for a fork bomb.
        """
        return self.own_user or os.getuid() != 0

    @property
    def counts_all_processes(self) -> bool:
        """Whether the limit counts all processes of the user, not only those in the box."""
        release = os.uname().release.split(".")
        recent = (int(release[0]), int(release[1].split("-")[0])) >= (5, 14)
        return not self.own_user and (self.level == "process" or not recent)

    def make_box(self, hash_seed: int) -> Box:
        """A new box of this level; not waited for. Raises OSError."""
        return Box(self.way, hash_seed=hash_seed, roles=ROLES, use_landlock=landlock.version() > 0)

    def describe(self) -> str:
        """One line for people."""
        text = {
            "namespaces": "user, mount, pid, network and IPC namespaces of its own; read-only view of the system",
            "bubblewrap": "bubblewrap, one start a run; read-only view of the system",
            "process": "own session and limits only; no namespaces",
        }[self.level]
        features = [*(["own user id"] if self.own_user else []), *self.features]
        features += [] if self.can_limit_processes else ["programs cannot start processes"]
        features += ["programs can reach what this user can reach"] if self.way.unprotected else []
        return text + "".join(f", {feature}" for feature in features)


def detect(wanted: str = "auto") -> Isolation:
    """The best level that protects, or the one that is wanted. Raises SandboxError when there is none."""
    if wanted not in CHOICES:
        raise SandboxError(f"unknown isolation {wanted!r}", hint=f"one of: {', '.join(CHOICES)}")
    tried: list[str] = []
    for way in ways(wanted, LEVELS):
        try:
            features = _features(Isolation(way))
        except (WorkerError, OSError) as error:
            tried.append(f"{way.level}: {error}")
            continue
        return Isolation(way, features, tuple(tried))
    raise SandboxError(
        f"no program can be isolated here ({'; '.join(tried)})",
        hint="apt-get install bubblewrap, or allow user namespaces (sysctl user.max_user_namespaces=10000), and let "
        "others read the installation of Python; "
        "--isolation unprotected, an option of environments, accepts that programs can reach what this user can",
    )


def _features(isolation: Isolation) -> tuple[str, ...]:
    """Start a box of this level and run a program in it that needs a library of Python."""
    box = isolation.make_box(0)
    try:
        box.wait_ready()
        limits = {
            "timeout_s": 10.0, "memory_mb": 512, "processes": 0 if not isolation.can_limit_processes else 8,
            "processes_of_user": 100_000, "open_files": 64, "output_kb": 64, "file_mb": 1, "tmp_mb": 1,
        }  # fmt: skip
        files = {
            "payload": b"import decimal; print(decimal.Decimal(6) * 7)",
            "stdin": b"",
            "stdout": b"",
            "stderr": b"",
        }
        with memory_files(files) as fds, private_folder(box) as folder:
            box.send(fds, limits, folder=folder)
            answer = box.answer(10.0)
            written = os.pread(fds["stdout"], 10, 0)
            if written != b"42\n":
                reason = os.pread(fds["stderr"], 2000, 0).decode("utf-8", "replace").strip().rpartition("\n")[2]
                raise WorkerError(f"a test program failed: {reason or answer}")
        return box.features
    finally:
        box.close()
