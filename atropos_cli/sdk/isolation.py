"""Isolation: code that may crash, hang or do harm runs in a process of its own, with limits."""

from __future__ import annotations

from atropos_cli.isolation.command import bubblewrap_command, guard_file, readable_paths
from atropos_cli.isolation.spec import (
    WorkerCrashed,
    WorkerError,
    WorkerMemory,
    WorkerSpec,
    WorkerTimeout,
    accept_isolation,
    is_machine_root,
    own_user_id,
    stored_isolation,
)
from atropos_cli.isolation.worker import IsolatedWorker, shared_worker

__all__ = [
    "IsolatedWorker",
    "WorkerCrashed",
    "WorkerError",
    "WorkerMemory",
    "WorkerSpec",
    "WorkerTimeout",
    "accept_isolation",
    "bubblewrap_command",
    "guard_file",
    "is_machine_root",
    "own_user_id",
    "readable_paths",
    "shared_worker",
    "stored_isolation",
]
