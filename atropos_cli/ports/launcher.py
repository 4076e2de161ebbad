"""Launchers: where a plan runs (here, in tmux, on a cluster)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.ports.backend import NoOptions

JobState = Literal["pending", "running", "finished", "failed", "cancelled", "unknown"]


class JobSpec(Frozen):
    """One job: a folder with its plan, and the resources it needs (launcher-neutral names).

    run: the job's folder. It holds the plan.json or job.json that `atropos run` carries out there, unless the
    job is another atropos command: `command` is then its arguments, and `cwd` where it runs. after: ids of jobs
    that must have succeeded before. options: more options in the launcher's own terms.
    """

    name: str
    run: str
    command: tuple[str, ...] = ()
    cwd: str | None = None
    resources: JsonDict = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    after: tuple[str, ...] = ()
    options: dict[str, str] = Field(default_factory=dict)


class JobStatus(Frozen):
    id: str
    state: JobState
    exit_code: int | None = None
    reason: str | None = None


class Launcher(ABC):
    """Starts jobs and tells how they are. render() is pure: same job, same text.

    spreads: can it carry out a run in shards? Then resources["shards"] is their number, and each
    <run>/shards/I holds a plan.json of its own.
    """

    name: ClassVar[str]
    spreads: ClassVar[bool] = False
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
        """The job's state now."""

    @abstractmethod
    def logs(self, job_id: str, *, follow: bool = False) -> Iterator[str]:
        """The job's output, line by line."""

    @abstractmethod
    def cancel(self, job_id: str) -> None:
        """Stop the job and everything it started."""
