"""The SLURM launcher: renders one short batch script, submits it, asks how it stands."""

from __future__ import annotations

from atropos_cli.sdk.launchers import LauncherCommands

commands = LauncherCommands("slurm", "Run atropos commands as SLURM jobs, on one node or many.")
