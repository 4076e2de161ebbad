"""Ray over the nodes of a job: the first one has the head and the trainer's driver, the others lend their GPUs.

A job of several nodes runs the same training on each, with NNODES, NODE_RANK, MASTER_ADDR and MASTER_PORT set (see
`jobs.prepare`). The port is Ray's here. The file `over` in the trainer's folder ends the others.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from atropos_cli.distributed.process import Launched, wait_until
from atropos_cli.domain.training import TrainPlan
from atropos_cli.errors import ConfigError, TrainerError

OVER = "over"
_MEET_S = 600.0
_ASK_S = 120.0
_GRACE = 20.0
_ALIVE = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
print(sum(node["Alive"] for node in ray.nodes()))
"""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of this run. number: which of them this is. mark: a name of this start, the same on all nodes."""

    count: int = 1
    number: int = 0
    address: str = ""
    mark: str = ""

    @classmethod
    def here(cls, plan: TrainPlan, environ: Mapping[str, str] | None = None) -> Nodes:
        """Raises ConfigError for several processes on one node."""
        env = os.environ if environ is None else environ
        count = int(env.get("NNODES") or 1)
        if int(env.get("WORLD_SIZE") or 1) > count:
            raise ConfigError(
                f"trainer {plan.trainer.name!r} starts the processes of its GPUs itself",
                hint="leave out --processes; --gpus N is the number of GPUs of a node",
            )
        if count == 1:
            return cls()
        address = f"{env.get('MASTER_ADDR', '127.0.0.1')}:{env.get('MASTER_PORT', '6379')}"
        mark = f"{address} {env.get('SLURM_JOB_ID', '')} {env.get('SLURM_RESTART_COUNT', '')}"
        number = int(env.get("NODE_RANK") or env.get("RANK") or 0)
        return cls(count, number, address, mark)


class Ray:
    """Ray's part on this node, where there are several. env: for its processes and all that they start."""

    def __init__(self, nodes: Nodes, python: str, folder: Path, env: Mapping[str, str]) -> None:
        self._nodes, self._python, self._folder, self._env = nodes, python, folder, dict(env)
        self._launched: Launched | None = None

    def _start(self, *words: str) -> Launched:
        command = [str(Path(self._python).parent / "ray"), "start", *words, "--block", "--disable-usage-stats"]
        return Launched(command, self._env, self._folder / "logs" / f"ray-{self._nodes.number}.log")

    def lead(self, stopping: Callable[[], bool]) -> Mapping[str, str]:
        """Start the head, wait for the other nodes; the variables of the driver. Raises TrainerError."""
        (self._folder / OVER).unlink(missing_ok=True)
        if self._nodes.count == 1:
            return {}
        host, _, port = self._nodes.address.rpartition(":")
        self._launched = head = self._start("--head", f"--port={port}", f"--node-ip-address={host}")
        if not wait_until(lambda: head.code is not None or self._alive() >= self._nodes.count, _MEET_S, stopping):
            if stopping():
                return {}
            raise TrainerError(
                f"Ray has {self._alive()} of {self._nodes.count} nodes after {_MEET_S:.0f} s",
                hint=f"see {head.log} and the logs beside it",
            )
        if head.code is not None:
            raise TrainerError(f"Ray's head ended with code {head.code}: {head.said(3)}", hint=f"see {head.log}")
        return {"RAY_ADDRESS": self._nodes.address}

    def follow(self, stopping: Callable[[], bool]) -> None:
        """Lend this node until the first one says that the run is over. Raises TrainerError."""
        over = self._folder / OVER
        left, tries = _changed(over), 0  # by an earlier run at the same address

        def ended() -> bool:
            try:
                return over.read_text(encoding="utf-8") == self._nodes.mark and _changed(over) != left
            except OSError:
                return False

        while not ended() and not stopping():
            self._launched = joined = self._start(f"--address={self._nodes.address}")
            tries += 1
            wait_until(lambda: joined.code is not None or ended(), float("inf"), stopping)  # noqa: B023 - called here
            if joined.code is not None and not ended() and not stopping():
                if tries * 5 > _MEET_S:
                    raise TrainerError(
                        f"this node cannot join Ray at {self._nodes.address}: {joined.said(3)}",
                        hint=f"see {joined.log}",
                    )
                wait_until(ended, 5.0, stopping)  # the head may not be there yet
        self.close()

    def close(self) -> None:
        """End Ray's processes here, and those on the other nodes where this is the first."""
        if self._nodes.count > 1 and self._nodes.number == 0:
            (self._folder / OVER).write_text(self._nodes.mark, encoding="utf-8")
        if self._launched is not None:
            self._launched.end(_GRACE)
            self._launched = None

    def _alive(self) -> int:
        try:
            asked = subprocess.run(  # noqa: S603 - no shell; the Python that the user named
                [self._python, "-c", _ALIVE, self._nodes.address],
                env=self._env, capture_output=True, text=True, timeout=_ASK_S, check=True,
            )  # fmt: skip
            return int(asked.stdout.split()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            return 0


def _changed(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
