"""`atropos slurm submit|status|logs|cancel|list`: the commands of `atropos job` for SLURM."""

from __future__ import annotations

from atropos_cli.sdk.launchers import LauncherCommands

app = LauncherCommands("slurm", "Run atropos commands as SLURM jobs, on one node or many.")
