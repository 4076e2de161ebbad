"""Launchers: jobs of programs that run elsewhere."""

from __future__ import annotations

from atropos_cli.config.sizes import job_name, parse_limit, parse_memory, parse_time
from atropos_cli.domain.base import Frozen
from atropos_cli.domain.job import Code, Component, JobPlan, Resources, Warmup
from atropos_cli.errors import LaunchError, LauncherSilent
from atropos_cli.jobs.setup import SETUP_ENDED, behind_setup, check_setup
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
    "SETUP_ENDED",
    "Code",
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
    "behind_setup",
    "check_setup",
    "job_name",
    "only_here",
    "parse_limit",
    "parse_memory",
    "parse_time",
]
