"""Launchers: where jobs run (here, in tmux, on a cluster). A launcher is a plugin like a backend."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.job import JOB_FILE, JobPlan
from atropos_cli.errors import LaunchError
from atropos_cli.ports.backend import NoOptions

JobState = Literal["pending", "running", "finished", "failed", "cancelled", "unknown"]


class JobSpec(Frozen):
    """One job: a folder with its plan, and the resources it needs (launcher-neutral names).

    run: the job's folder. It holds the plan.json or job.json that `atropos run` carries out there, unless the
    job is another atropos command: `command` is then its arguments, and `cwd` where it runs. after: ids of jobs
    that must have succeeded before. options: more options in the launcher's own terms. setup: lines of bash before
    `command`; a job.json has its own.
    """

    name: str
    run: str
    command: tuple[str, ...] = ()
    cwd: str | None = None
    resources: JsonDict = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    after: tuple[str, ...] = ()
    options: dict[str, str] = Field(default_factory=dict)
    setup: tuple[str, ...] = ()

    def words(self) -> tuple[str, ...]:
        """The arguments of atropos that carry the job out on this machine, whatever node of a cluster it is."""
        if self.command:
            return self.command
        job = Path(self.run) / JOB_FILE
        return ("run", str(job if job.exists() else self.run))

    def parts(self) -> list[tuple[Path, list[str]]]:
        """(folder, argv) of each process to be started: one for each shard of a run, else the job alone."""
        folder, program = Path(self.run).absolute(), [sys.executable, "-m", "atropos_cli"]
        count = self.resources.get("shards")
        if not isinstance(count, int):
            return [(folder, [*program, *self.words()])]
        shards = [folder / "shards" / str(number) for number in range(count)]
        return [(shard, [*program, "run", str(shard)]) for shard in shards]


class KeyedJob(Frozen):
    """Rows that are to meet others of their key.

    files: parquet files with the columns bucket (int32), place (int64), key and payload (binary); equal keys are in
    equal buckets. function: MODULE:NAME, called with the rows of a bucket as (place, key, payload) in the order of
    places, and `options`; it returns (place, verdict) pairs. out: a folder for parquet files with these two columns.
    """

    files: tuple[str, ...]
    function: str
    out: str
    options: JsonDict = Field(default_factory=dict)


class JobStatus(Frozen):
    """The state of a job. hopeless: it waits, and will never start. detail: the launcher's own terms, to be shown.

    answered: False when nothing is known because the launcher could not be asked; "unknown" with True: it was asked,
    and does not know the job. restarts: how often it started the job again. identity: facts that set the job apart from
    another one of the same id, such as its name and when it was submitted. They are kept when a job is submitted, and
    a job that differs in one of them later is another job; one that is left out is not compared.
    """

    id: str
    state: JobState
    exit_code: int | None = None
    reason: str | None = None
    hopeless: bool = False
    detail: dict[str, str] = Field(default_factory=dict)
    answered: bool = True
    restarts: int = 0
    identity: dict[str, str] = Field(default_factory=dict)


class LauncherCapabilities(Frozen):
    """What a launcher can do.

    submit: start a job that goes on without us; another process can ask for it by its id.
    shards: carry out one run in resources["shards"] parts; each <run>/shards/I holds a plan.json.
    arrays: start resources["array"] tasks of one job, each of which finds its shard by SLURM_ARRAY_TASK_ID.
    nodes: give one job several nodes. dependencies: start a job when others have succeeded (JobSpec.after).
    services: run a job's servers on the nodes of its own.
    keyed: bring rows of one key together, wherever they are, and let a function decide over them (`decide`).
    """

    submit: bool = True
    shards: bool = False
    arrays: bool = False
    nodes: bool = False
    dependencies: bool = False
    services: bool = False
    keyed: bool = False


class Launcher(ABC):
    """Starts jobs and tells how they are. render() is pure: same job, same text.

    asks: the program and option by which `verdict` asks before a job is submitted, for messages.
    source: "/folder/file.py:Class" of a launcher that comes from a file, by which its jobs find it again.
    """

    name: ClassVar[str]
    capabilities: ClassVar[LauncherCapabilities] = LauncherCapabilities()
    asks: ClassVar[str | None] = None
    source: str | None = None
    Config: ClassVar[type[BaseModel]] = NoOptions

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def render(self, job: JobSpec) -> str:
        """The script that would be started."""

    @abstractmethod
    def submit(self, job: JobSpec) -> str:
        """Start the job and return its id. Raises LaunchError."""

    @abstractmethod
    def status(self, job_id: str) -> JobStatus:
        """The job's state now. Raises LauncherSilent when there is no answer, which is not "unknown"."""

    @abstractmethod
    def logs(self, job_id: str, *, follow: bool = False) -> Iterator[str]:
        """The job's output, line by line."""

    @abstractmethod
    def cancel(self, job_id: str) -> None:
        """Stop the job and everything it started."""

    def decide(self, job: KeyedJob) -> None:
        """Decide over rows of equal keys, with the capability `keyed`; returns when it is done. Raises LaunchError."""
        raise LaunchError(f"launcher {self.name!r} does not bring rows of one key together")

    # What follows has an answer that fits most launchers.

    def adapt(self, plan: JobPlan, folder: Path) -> JobPlan:
        """The plan with what this launcher adds to every job: variables, containers, a network interface."""
        return plan

    def check_option(self, key: str) -> None:
        """May this key stand in JobSpec.options? Raises ValueError that says why not."""
        raise ValueError(f"launcher {self.name!r} takes no options of this kind")

    def call(self, job: JobSpec) -> list[str]:
        """The command that submits the job, where there is one to show."""
        return []

    def doubts(self, job: JobSpec) -> list[str]:
        """What may keep the job from working and can be seen from here."""
        return []

    def verdict(self, job: JobSpec) -> str | None:
        """What the cluster says to the job before it is submitted. Raises LaunchError with its reason why not."""
        return None

    def tasks(self, job_id: str, count: int) -> Mapping[int, JobStatus]:
        """The tasks of an array by their index, as far as the launcher knows them."""
        return {}

    def output(self, job: JobSpec, job_id: str, task: int | None = None) -> Path | None:
        """The file with what the job itself prints (the supervisor of its programs); None: see `logs`."""
        return None

    @classmethod
    def examples(cls) -> tuple[str, ...]:
        """Command lines that fit this machine, for a user who gave no command."""
        return (f"atropos job submit --on {cls.name} -- gen ENV --limit 100 --output runs/play",)


@dataclass(frozen=True, slots=True)
class LauncherCommands:
    """What an entry point of group `atropos.commands` may name besides a typer.Typer: the commands of
    `atropos job` for one launcher, as a group of its own.

        commands = LauncherCommands("slurm", "Run atropos commands as SLURM jobs.")
    """

    launcher: str
    help: str

    def __call__(self) -> None:
        """Commands are callable."""
        raise TypeError("a LauncherCommands is not called; it is an entry point of atropos.commands")
