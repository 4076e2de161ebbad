"""The launcher `ray`: N shards of one plan as N tasks of a cluster that is there already.

The plan travels as the file <run>/shards/I/plan.json, so the run's folder must lie on a file system that all
nodes share, and every node needs atropos with the same plugins. The job lives as long as the process that
submitted it: Ray ends the tasks of a driver that is gone, and the run can then be resumed.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.sdk import Config, Field
from atropos_cli.sdk.launchers import JobSpec, JobStatus, KeyedJob, Launcher, LauncherCapabilities, LaunchError
from atropos_ray.shard import LOG, NotShared, ShardLost, carry_out

_TICK = 0.2


class RayConfig(Config):
    address: str = Field(default="auto", description="Address of the cluster; auto: RAY_ADDRESS, or one on this node.")
    num_cpus: float = Field(default=1.0, ge=0, description="CPUs that Ray reserves for a shard.")
    num_gpus: float = Field(default=0.0, ge=0, description="GPUs that Ray reserves for a shard.")
    retries: int = Field(default=3, ge=0, description="How often a shard that was killed is begun again.")


class RayLauncher(Launcher):
    """Carries out the shards of a run on a Ray cluster."""

    name: ClassVar[str] = "ray"
    Config: ClassVar[type[RayConfig]] = RayConfig
    capabilities: ClassVar[LauncherCapabilities] = LauncherCapabilities(submit=False, shards=True, keyed=True)

    def __init__(self, config: RayConfig | None = None) -> None:
        super().__init__(config or RayConfig())
        self._jobs: dict[str, _Job] = {}

    def render(self, job: JobSpec) -> str:
        """What would be submitted, as JSON."""
        folders = [str(folder) for folder in _folders(job)]
        options = {**self._options(), "address": self.config.address}
        return json.dumps({"tasks": folders, "options": options, "cwd": job.cwd, "env": sorted(job.env)}, indent=2)

    def submit(self, job: JobSpec) -> str:
        """Connect to the cluster and start a task for each shard. Raises LaunchError without a cluster."""
        if job.after:
            raise LaunchError("a job on Ray cannot wait for another job")
        ray = self._connected()
        options = {
            **self._options(),
            "max_retries": self.config.retries,
            "retry_exceptions": [ShardLost],
            "scheduling_strategy": "SPREAD",
        }
        task = ray.remote(carry_out).options(**options)
        folders = _folders(job)
        cwd = job.cwd or str(Path.cwd())
        begun = [_size(folder / LOG) for folder in folders]
        self._jobs[job.run] = _Job(
            ray, begun, folders, [task.remote(str(folder), cwd, dict(job.env)) for folder in folders]
        )
        return job.run

    def decide(self, job: KeyedJob) -> None:
        """Decide over rows of equal keys by Ray Data. Raises LaunchError."""
        from atropos_ray.keyed import decide

        ray = self._connected()
        try:
            decide(job)
        except ImportError as error:
            raise LaunchError(f"Ray Data: {error}", hint="pip install 'atropos-ray[data]'") from error
        except ray.exceptions.RayError as error:
            raise LaunchError(f"Ray Data failed: {_reason(error)}", hint="see the log of the cluster") from error

    def status(self, job_id: str) -> JobStatus:
        """How the job stands; only for jobs of this process."""
        return self._job(job_id).status(job_id)

    def logs(self, job_id: str, *, follow: bool = False) -> Iterator[str]:
        """What the shards print, each line with its shard's number."""
        job = self._job(job_id)
        tails = [_Tail(folder / LOG, number, job.begun[number]) for number, folder in enumerate(job.folders)]
        while True:
            over = job.status(job_id).state not in ("running", "pending")
            for tail in tails:
                yield from tail.lines()
            if over or not follow:
                return
            time.sleep(_TICK)

    def cancel(self, job_id: str) -> None:
        """Stop the shards; each saves its finished groups."""
        job = self._job(job_id)
        job.cancelled = True
        for ref in job.refs:
            job.ray.cancel(ref, force=False)
        job.ray.wait(job.refs, num_returns=len(job.refs), timeout=90.0)

    def _options(self) -> dict[str, Any]:
        return {"num_cpus": self.config.num_cpus, "num_gpus": self.config.num_gpus}

    def _job(self, job_id: str) -> _Job:
        try:
            return self._jobs[job_id]
        except KeyError as error:
            raise LaunchError(
                f"no Ray job {job_id!r} was submitted by this process", hint="ray list tasks shows those of the cluster"
            ) from error

    def _connected(self) -> Any:
        import ray

        if not ray.is_initialized():
            try:
                _knock(self.config.address)
                ray.init(address=self.config.address, log_to_driver=False, logging_level="warning")
            except (OSError, ValueError, RuntimeError) as error:
                first = str(error).strip().splitlines() or [type(error).__name__]
                raise LaunchError(
                    f"there is no Ray cluster at {self.config.address!r}: {first[0]}",
                    hint="ray start --head begins one; RAY_ADDRESS or --on-option address=HOST:PORT names another",
                ) from error
        return ray


class _Job:
    """The tasks of one job. begun: the sizes of the shards' logs before it; earlier attempts were shown then."""

    def __init__(self, ray: Any, begun: list[int], folders: list[Path], refs: list[Any]) -> None:
        self.ray = ray
        self.begun = begun
        self.folders = folders
        self.refs = refs
        self.cancelled = False

    def status(self, job_id: str) -> JobStatus:
        done, waiting = self.ray.wait(self.refs, num_returns=len(self.refs), timeout=0)
        codes: dict[int, int] = {}
        problems: list[str] = []
        for ref in done:
            number = self.refs.index(ref)
            try:
                codes[number] = self.ray.get(ref)
            except Exception as error:  # noqa: BLE001 (a task may raise anything)
                problems.append(f"shard {number}: {_reason(error)}")
        if waiting:
            return JobStatus(id=job_id, state="running", reason=f"{len(done)} of {len(self.refs)} shards ended")
        if self.cancelled:
            return JobStatus(id=job_id, state="cancelled", exit_code=130)
        if problems:
            return JobStatus(id=job_id, state="failed", reason="; ".join(problems))
        failed = {number: code for number, code in codes.items() if code}
        if not failed:
            return JobStatus(id=job_id, state="finished", exit_code=0)
        reason = ", ".join(f"shard {number} with exit code {code}" for number, code in sorted(failed.items()))
        return JobStatus(id=job_id, state="failed", exit_code=max(failed.values()), reason=reason)


class _Tail:
    """New lines of a file that another process appends to."""

    def __init__(self, path: Path, number: int, position: int) -> None:
        self._path = path
        self._label = f"[{number}] "
        self._position = position
        self._rest = b""

    def lines(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
            self._position += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            return [self._label + line.decode("utf-8", "replace") for line in lines]
        return []


def _knock(address: str) -> None:
    """Does anybody listen there? Ray itself would try for minutes. Raises OSError."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "")
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10):
            return


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _folders(job: JobSpec) -> list[Path]:
    count = job.resources.get("shards", 1)
    if not isinstance(count, int) or count < 1:
        raise LaunchError(f"a job of {count!r} shards")
    return [Path(job.run).absolute() / "shards" / str(number) for number in range(count)]


def _reason(error: Exception) -> str:
    """The first words of a task's error, without Ray's frame around it."""
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, NotShared):
        return f"{cause} (put the run on a file system that all nodes share)"
    if isinstance(cause, ModuleNotFoundError) or "ModuleNotFoundError" in str(cause):
        return f"{str(cause).strip().splitlines()[-1]} (install atropos-cli and atropos-ray on every node)"
    text = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {text[-1] if text else ''}"
