"""A worker process as its parent sees it: start it in a folder of its own, ask it with a deadline, end it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

from atropos_cli.sdk.isolation import WorkerProcess, WorkerTimeout

Role = Literal["play", "build"]

PACKAGE_PARENT = Path(__file__).parent.parent.parent
GRACE = 2.0
"""Seconds a worker has to leave by itself when it is closed."""

_REMOVED_FROM_ENVIRONMENT = ("TEXTWORLD_DEBUG", "TEXTWORLD_I6_DEBUG", "INFORM_HOME", "PYTHONSTARTUP")
"""Would leave files behind, switch on debugging verbs in games, or compile with another compiler."""


class CallFailed(Exception):
    """The worker answered with an error. `type` is the name of its exception class."""

    def __init__(self, type_: str, message: str) -> None:
        super().__init__(message)
        self.type = type_
        self.message = message


class GameProcess(WorkerProcess):
    """One worker. Create with `await GameProcess.begin(...)`."""

    folder: Path

    @classmethod
    async def begin(cls, role: Role, root: Path) -> GameProcess:
        """Start a worker whose working directory is a new folder under `root`."""
        folder, log = _new_folder(role, root)
        with log:
            environment = _environment(os.environ, folder)
            worker = await cls.start("atropos_textworld.engine.worker", role, log=log, cwd=folder, env=environment)
        worker.folder = folder
        return worker

    async def ask(self, op: str, deadline: float, **fields: Any) -> Any:
        """Ask and wait `deadline` seconds for the answer, or for a notice that starts them anew.

        Raises CallFailed, WorkerTimeout or WorkerCrashed. After WorkerTimeout the caller must `kill()`.
        """
        with self.call({"op": op, **fields}) as call:
            while True:
                try:
                    frame = await call.next(deadline)
                except WorkerTimeout:
                    raise WorkerTimeout(f"no answer to {op!r} in {deadline:g} s") from None
                if "error" in frame:
                    raise CallFailed(str(frame["error"]["type"]), str(frame["error"]["message"]))
                if "value" in frame:
                    return frame["value"]

    def ending(self) -> str:
        """How the process ended, with the last line of its log."""
        with contextlib.suppress(OSError):
            lines = (self.folder / "stderr.log").read_text(errors="replace").strip().splitlines()
            if lines:
                return f"{super().ending()} (last line of its log: {lines[-1][:200]})"
        return super().ending()

    async def kill(self) -> None:
        """End the process and what it started, now, and remove its folder."""
        await super().kill()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def close(self, grace: float = GRACE) -> None:
        """Let the process leave by itself; end it if it does not. Its folder is removed."""
        await super().close(grace)
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)


def _new_folder(role: Role, root: Path) -> tuple[Path, IO[bytes]]:
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{role}-", dir=root))
    return folder, (folder / "stderr.log").open("wb")


def _environment(outer: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The parent's environment, with temporary files in the worker's folder and this package importable."""
    kept = {name: value for name, value in outer.items() if name not in _REMOVED_FROM_ENVIRONMENT}
    paths = [str(PACKAGE_PARENT), *filter(None, [outer.get("PYTHONPATH")])]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        # Some challenges depend on the order of sets of strings.
        "PYTHONHASHSEED": "0",
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
    }
