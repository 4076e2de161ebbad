"""One training run on several processes: start them on this host, watch them, and end them together.

    code = Launch(World.here(processes=8), ["run", FOLDER], say).run()

Each process gets the variables that torch.distributed reads: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE,
MASTER_ADDR, MASTER_PORT. Over several hosts the same command runs on each of them, with NNODES, NODE_RANK,
MASTER_ADDR and MASTER_PORT set. Unlike torchrun the exit code is that of rank 0, so that a job knows an interrupted
run, which goes on, from a failed one.

The processes do not see the terminal's Ctrl-C: it comes here, and each gets one SIGTERM. When one fails, the others
wait for it in a collective operation for ever: they get some seconds to notice, and are killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import IO

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.commands import ExitCode, data_fd
from atropos_cli.sdk.jobs import NoPort, Ports, die_with_parent
from atropos_cli.sdk.launchers import LaunchError

_TICK = 0.05
_NOTICE = 15.0
"""Seconds that the others get to end by themselves after one has failed."""
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class World:
    """processes: on each host. hosts, host: how many there are, and which of them this is."""

    processes: int = 1
    hosts: int = 1
    host: int = 0
    address: str | None = None
    port: int | None = None

    @property
    def size(self) -> int:
        """All processes of the run."""
        return self.processes * self.hosts

    @classmethod
    def here(cls, processes: int, environ: Mapping[str, str] | None = None) -> World:
        """As NNODES, NODE_RANK, MASTER_ADDR and MASTER_PORT say. Raises UsageError when they do not agree."""
        env = os.environ if environ is None else environ
        if "RANK" in env:  # one process of a run that torchrun, accelerate or this module has started
            if processes > 1:
                raise UsageError(
                    "--processes starts processes, and this one has been started as one of several (RANK is set)",
                    hint="drop --processes, or the launcher in front of it",
                )
            return cls()
        hosts, host = _number(env, "NNODES", 1), _number(env, "NODE_RANK", 0)
        if hosts == 1:
            return cls(processes)
        if not 0 <= host < hosts:
            raise UsageError(f"NODE_RANK={host} is not below NNODES={hosts}")
        address, port = env.get("MASTER_ADDR"), _number(env, "MASTER_PORT", 0)
        if not address or not port:
            raise UsageError(
                f"NNODES={hosts}: the processes do not know where to meet",
                hint="set MASTER_ADDR to an address of the first host and MASTER_PORT to a free port there",
            )
        return cls(processes, hosts, host, address, port)


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    if text and not text.isdecimal():
        raise UsageError(f"{name}={text!r} is not a number")
    return int(text) if text else default


@dataclass(slots=True)
class _Process:
    rank: int
    popen: subprocess.Popen[bytes]
    output: IO[bytes] | None
    code: int | None = None


class Launch:
    """The processes of one host. words: the arguments after `atropos`. say: takes lines for people."""

    def __init__(self, world: World, words: Sequence[str], say: Callable[[str], None]) -> None:
        self._world = world
        self._words = list(words)
        self._say = say
        self._running: list[_Process] = []
        self._signals = 0
        self._first_failure: tuple[_Process, float] | None = None

    def run(self) -> ExitCode:
        """Until all have ended; returns the exit code. Raises LaunchError when one cannot be started."""
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._on_signal) for number in handled}
        try:
            self._start()
            while any(item.code is None for item in self._running):
                self._look()
                time.sleep(_TICK)
            return self._result()
        finally:
            self._kill()
            for number, handler in before.items():
                signal.signal(number, handler)
            for item in self._running:
                if item.output is not None:
                    item.output.close()

    def _start(self) -> None:
        world = self._world
        try:
            port = world.port or Ports(str(os.getpid()), "train").pick()
        except NoPort as error:
            raise LaunchError(str(error)) from error
        for local in range(world.processes):
            number = world.host * world.processes + local
            env = {
                **os.environ,
                "RANK": str(number),
                "LOCAL_RANK": str(local),
                "WORLD_SIZE": str(world.size),
                "LOCAL_WORLD_SIZE": str(world.processes),
                "MASTER_ADDR": world.address or "127.0.0.1",
                "MASTER_PORT": str(port),
                **own_instance(os.environ, local),
            }
            # Rank 0 speaks for all. What another says is shown when it is the first to fail.
            output = tempfile.TemporaryFile() if number else None  # noqa: SIM115 - closed when all have ended
            try:
                popen = subprocess.Popen(  # noqa: S603 - this program again
                    [sys.executable, "-P", "-m", "atropos_cli", *self._words],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output or data_fd(),
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=_end_with_parent,
                )
            except OSError as error:
                raise LaunchError(f"process {number} cannot be started: {error.strerror}") from error
            self._running.append(_Process(number, popen, output))

    def _look(self) -> None:
        for item in self._running:
            if item.code is None and (code := item.popen.poll()) is not None:
                item.code = 128 - code if code < 0 else code
                if code and self._first_failure is None and not self._signals:
                    self._first_failure = item, time.monotonic()
        if self._first_failure is not None and time.monotonic() - self._first_failure[1] > _NOTICE:
            self._kill()

    def _kill(self) -> None:
        for item in self._running:
            if item.popen.poll() is None:
                item.popen.kill()
                item.popen.wait()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        for item in self._running:
            if item.popen.poll() is None:
                item.popen.send_signal(signal.SIGTERM if self._signals == 1 else signal.SIGKILL)

    def _result(self) -> ExitCode:
        if self._first_failure is not None:
            self._explain(self._first_failure[0])
            return next(
                (known for item in (self._running[0], self._first_failure[0]) if (known := _meaning(item.code))),
                ExitCode.TRAINER,
            )
        if self._running[0].code == 0:
            return ExitCode.OK
        return _meaning(self._running[0].code) or ExitCode.INTERRUPTED

    def _explain(self, item: _Process) -> None:
        code = item.code or 0
        if code >= 128:
            name = signal.Signals(code - 128).name if code - 128 in list(signal.Signals) else str(code - 128)
            self._say(f"rank {item.rank} was ended by signal {name}; --resume continues from the last checkpoint")
        if item.output is not None:
            item.output.seek(0)
            lines = item.output.read().decode(errors="replace").strip().splitlines()
            for line in lines[-_SHOWN:]:
                self._say(f"rank {item.rank}: {line}")


def _meaning(code: int | None) -> ExitCode | None:
    """What a process says with its exit code, if it is one of ours and not 0."""
    return ExitCode(code) if code in list(ExitCode) and code else None


def _end_with_parent() -> None:
    die_with_parent(signal.SIGTERM)


def own_instance(environ: Mapping[str, str], local: int) -> dict[str, str]:
    """Of divided GPUs (MIG) a process sees one instance only, its first: each process is shown its own.

    Raises LaunchError for more processes than instances.
    """
    names = [name.strip() for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if not any(name.startswith("MIG-") for name in names):
        return {}
    if local >= len(names):
        raise LaunchError(
            f"process {local} has no GPU: CUDA_VISIBLE_DEVICES names {len(names)}", hint=f"--processes {len(names)}"
        )
    return {"CUDA_VISIBLE_DEVICES": names[local]}
