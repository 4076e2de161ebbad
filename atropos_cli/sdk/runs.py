"""Runs: their plans and summaries."""

from __future__ import annotations

from atropos_cli.domain.plan import ComponentRef, Plan, RewardRef
from atropos_cli.domain.run import RunSummary
from atropos_cli.errors import PlanChanged, RunExists, RunFailed, RunLocked
from atropos_cli.io.rundir import being_written, now
from atropos_cli.runs.entry import RunEntry, RunReader, first_start, object_in
from atropos_cli.runs.find import holds_rollouts, is_run
from atropos_cli.runs.listing import Listing, list_runs, telling_options
from atropos_cli.runs.listing import progress as run_progress
from atropos_cli.runs.listing import result as run_result
from atropos_cli.runs.listing import what as run_subject
from atropos_cli.training.records.curves import drawn as training_charts
from atropos_cli.training.records.curves import page as training_page
from atropos_cli.training.records.metrics import read_metrics

__all__ = [
    "ComponentRef",
    "Listing",
    "Plan",
    "PlanChanged",
    "RewardRef",
    "RunEntry",
    "RunExists",
    "RunFailed",
    "RunLocked",
    "RunReader",
    "RunSummary",
    "being_written",
    "first_start",
    "holds_rollouts",
    "is_run",
    "list_runs",
    "now",
    "object_in",
    "read_metrics",
    "run_progress",
    "run_result",
    "run_subject",
    "telling_options",
    "training_charts",
    "training_page",
]
