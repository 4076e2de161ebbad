"""What is ordered of a launcher: a command as a resolved plan, or as words, and what it needs of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from atropos_cli.domain.job import Code, Component, Resources
from atropos_cli.domain.runplan import RunPlan
from atropos_cli.ports.serving import Serve

A = TypeVar("A", bound=Callable[..., Any])
_MARK = "makes_plan"


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run that a command line asks for, resolved and not started.

    output: None leaves it to the caller. complete: `atropos run FOLDER` does all that the command does; otherwise
    the command has more to do than the plan says (an evaluation counts its successes). own_drain: the user decided
    how long running groups may take in the end. own_processes: it starts those of its GPUs itself.
    """

    plan: RunPlan
    output: Path | None = None
    overwrite: bool = False
    processes: int = 1
    own_processes: bool = False
    complete: bool = True
    own_drain: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job is to be, besides its command; see Order. check: refuse a command that cannot run."""

    resources: Resources
    serve: Serve | None = None
    check: bool = True
    name: str | None = None
    folder: Path | None = None
    after: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    start_timeout: float = 1800.0
    max_requeues: int = 10
    cwd: Path = field(default_factory=Path.cwd)
    home: Path | None = None
    setup: tuple[str, ...] = ()
    code: Code | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """One job. words: the atropos command. folder: the job's, and that of the run it makes; None: one in runs/.

    run: the plan of the command; None when it has none, or when it can be made only where the job starts. frozen:
    the configuration files as they are now, for a command that goes by its words. servers: services to start beside
    the command; addresses: the options that name them to it, which hold placeholders. cwd: where the command runs;
    home: what the name of a folder for its run is relative to, where that is another place. setup, code: see JobPlan.
    """

    words: tuple[str, ...]
    resources: Resources
    run: PlannedRun | None = None
    frozen: dict[str, Any] | None = None
    name: str | None = None
    folder: Path | None = None
    after: tuple[str, ...] = ()
    servers: tuple[Component, ...] = ()
    addresses: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    start_timeout: float = 1800.0
    max_requeues: int = 10
    cwd: Path = field(default_factory=Path.cwd)
    home: Path | None = None
    setup: tuple[str, ...] = ()
    code: Code | None = None


def makes_plan(action: A) -> A:
    """Mark a command's function that hands its PlannedRun to `session.take` where there is one, and does no more."""
    vars(action)[_MARK] = True
    return action


def is_planner(action: Any) -> bool:
    """Does the function carry that mark?"""
    return bool(getattr(action, _MARK, False))
