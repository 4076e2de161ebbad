"""Launchers: jobs of programs that run elsewhere."""

from __future__ import annotations

from atropos_cli.config.sizes import job_name, parse_memory, parse_time
from atropos_cli.domain.base import Frozen
from atropos_cli.domain.job import Component, JobPlan, Resources, Warmup
from atropos_cli.errors import LaunchError, LauncherSilent
from atropos_cli.paths import only_here
from atropos_cli.ports.launcher import (
    JobSpec,
    JobState,
    JobStatus,
    KeyedJob,
    Launcher,
    LauncherCapabilities,
    LauncherCommands,
)

__all__ = [
    "Component",
    "Frozen",
    "JobPlan",
    "JobSpec",
    "JobState",
    "JobStatus",
    "KeyedJob",
    "LaunchError",
    "Launcher",
    "LauncherCapabilities",
    "LauncherCommands",
    "LauncherSilent",
    "Resources",
    "Warmup",
    "job_name",
    "only_here",
    "parse_memory",
    "parse_time",
]
