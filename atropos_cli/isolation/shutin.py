"""A process of ours that is started shut in, at one level, and says that it is ready or why it cannot be."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atropos_cli.isolation import child
from atropos_cli.isolation.command import bubblewrap_command, readable_paths
from atropos_cli.isolation.inside import watch
from atropos_cli.isolation.spec import Way, WorkerCrashed, own_user_id
from atropos_cli.isolation.start import Started, python

FILES = (child.__file__, str(Path(watch.__file__).parent))
"""What must be seen inside of the package."""

_ROOT = str(Path(child.__file__).parents[2])


def clean_environment(hash_seed: int = 0) -> dict[str, str]:
    """All the environment variables there. The hash seed is fixed: the same request has the same answer."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": str(hash_seed),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


class ShutIn(Started):
    """A process shut in. Call wait_ready() before anything else; end() ends it and everything in it.

    At the end of its socket it ends what it started, then itself. bwrap killed while it starts would leave a half-made
    sandbox that waits for ever, so end() needs a grace then. With namespaces of its own a process can be killed at any
    time: the kernel ends what is inside with it.
    """

    def __init__(
        self,
        way: Way,
        boot: str,
        settings: Mapping[str, Any],
        *,
        show: Sequence[str] = (),
        own: str | None = None,
        hash_seed: int = 0,
    ) -> None:
        """Start Python with the program `boot`, which reads the settings from its argument. Raises OSError.

        show: what must be seen besides Python. own: a folder that shall belong to its user. The settings get `level`,
        `unprotected`, `uid`, `become` (be that user, in the box), `paths` (what may be seen), and `folders` for the
        module search path.
        """
        self.way = way
        self.uid = own_user_id() if way.user != "same" else None
        self.ready = False
        paths = [*readable_paths(), *show]
        told = {
            "level": way.level, "unprotected": way.unprotected, "uid": self.uid, "paths": paths,
            "become": way.level == "bubblewrap" and way.user == "inside", **settings,
            "folders": [_ROOT, *settings.get("folders", ())],
        }  # fmt: skip
        # -I would ignore PYTHONHASHSEED; with a clean environment -P -s isolates as much.
        command = python("-s", "-c", boot, json.dumps(told))
        if way.level == "bubblewrap":
            program = shutil.which("bwrap")
            if program is None:
                raise OSError("bwrap is not installed")
            # Process 1 inside: when it ends, for whatever reason, everything inside ends. One of bwrap's own would
            # have the user id of the code inside, and its memory would be open to it.
            inside = way.user == "inside"
            command = [
                *bubblewrap_command(program, [*paths, *FILES], ["--as-pid-1"], changes_user=inside), *command,
            ]  # fmt: skip
        if own is not None and self.uid is not None:
            os.chown(own, self.uid, self.uid)
        self._log = os.memfd_create("log")
        try:
            user = self.uid if way.user == "own" else None
            super().__init__(command, log=self._log, cwd="/", env=clean_environment(hash_seed), user=user)
        except OSError:
            os.close(self._log)
            raise

    def wait_ready(self, seconds: float) -> dict[str, Any]:
        """What it says when it is ready. Raises WorkerCrashed with the reason when it never will be; it has ended then.

        The error's type: what the process says was wrong.
        """
        self._connection.settimeout(seconds)
        try:
            first = child.receive(self.incoming) or {}
            problem = ""
        except (OSError, child.NotAMessage) as error:
            first, problem = {}, str(error) or type(error).__name__
        if "ready" not in first:
            self.end(1.0 if first else seconds)
            words = "" if "message" in first else self.last_words() or problem or self.ending()
            self.close_log()
            raise WorkerCrashed(str(first.get("message") or words), type=first.get("error", "crashed"))
        self._connection.settimeout(None)
        self.ready = True
        return first

    def last_words(self) -> str:
        """The last line that it printed."""
        return os.pread(self._log, 4000, 0).decode("utf-8", "replace").strip().rpartition("\n")[2]

    def close_log(self) -> None:
        """Safe to call again."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _kill_group(self) -> None:
        if self.way.level == "bubblewrap" and self.exit_code() is None:
            proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
            try:
                below = watch.tree(proc, self.pid)
            finally:
                os.close(proc)
            for pid in below:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        super()._kill_group()
