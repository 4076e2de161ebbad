"""Isolation: code that may crash, hang or do harm runs in a process of its own, with limits."""

from __future__ import annotations

from atropos_cli.isolation.box import Box, BoxClosed, BoxPool, memory_files, private_folder
from atropos_cli.isolation.child import WorkerChannel
from atropos_cli.isolation.command import guard_file
from atropos_cli.isolation.inside.landlock import version as landlock_version
from atropos_cli.isolation.process import DirectWorker, WorkerPool, WorkerProcess
from atropos_cli.isolation.spec import (
    Level,
    Way,
    WorkerCrashed,
    WorkerError,
    WorkerMemory,
    WorkerSpec,
    WorkerTimeout,
    accept_isolation,
    stored_isolation,
    ways,
)
from atropos_cli.isolation.worker import IsolatedWorker, shared_worker

__all__ = [
    "Box",
    "BoxClosed",
    "BoxPool",
    "DirectWorker",
    "IsolatedWorker",
    "Level",
    "Way",
    "WorkerChannel",
    "WorkerCrashed",
    "WorkerError",
    "WorkerMemory",
    "WorkerPool",
    "WorkerProcess",
    "WorkerSpec",
    "WorkerTimeout",
    "accept_isolation",
    "guard_file",
    "landlock_version",
    "memory_files",
    "private_folder",
    "shared_worker",
    "stored_isolation",
    "ways",
]
