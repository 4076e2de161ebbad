"""Runs: their plans and summaries."""

from __future__ import annotations

from atropos_cli.domain.job import JOB_FILE
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.refs import ComponentRef, RewardRef
from atropos_cli.domain.run import RunSummary
from atropos_cli.errors import PlanChanged, RunExists, RunFailed, RunLocked
from atropos_cli.io.git import git_commit
from atropos_cli.io.rundir import (
    RunDir,
    being_written,
    check_alone,
    check_same_identity,
    holds_run,
    holds_training,
    now,
    open_run,
    read_stored,
    where_it_stands,
)
from atropos_cli.runs.entry import RunEntry, RunReader, first_start, object_in
from atropos_cli.runs.find import find_runs, holds_rollouts, is_run
from atropos_cli.runs.listing import Listing, list_runs, telling_options
from atropos_cli.runs.listing import progress as run_progress
from atropos_cli.runs.listing import result as run_result
from atropos_cli.runs.listing import what as run_subject
from atropos_cli.runs.state import state_of
from atropos_cli.training.curves import drawn as training_charts
from atropos_cli.training.curves import page as training_page
from atropos_cli.training.metrics import read_metrics

__all__ = [
    "JOB_FILE",
    "ComponentRef",
    "Listing",
    "Plan",
    "PlanChanged",
    "RewardRef",
    "RunDir",
    "RunEntry",
    "RunExists",
    "RunFailed",
    "RunLocked",
    "RunReader",
    "RunSummary",
    "being_written",
    "check_alone",
    "check_same_identity",
    "find_runs",
    "first_start",
    "git_commit",
    "holds_rollouts",
    "holds_run",
    "holds_training",
    "is_run",
    "list_runs",
    "now",
    "object_in",
    "open_run",
    "read_metrics",
    "read_stored",
    "run_progress",
    "run_result",
    "run_subject",
    "state_of",
    "telling_options",
    "training_charts",
    "training_page",
    "where_it_stands",
]
