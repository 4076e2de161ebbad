"""Records of a training run: metrics, samples, curves, evaluations, its state; and the stored rows it learns from."""

from __future__ import annotations

from atropos_cli.datasets.stored import check_data, prompt_rows, stored_groups, stored_rows
from atropos_cli.io.formats.common import ROLES
from atropos_cli.training.curves import HTML as CURVES_FILE
from atropos_cli.training.curves import draw_curves
from atropos_cli.training.metrics import MetricsLog, series
from atropos_cli.training.samples import PER_STEP, Samples, read_samples, sample_row, spaced
from atropos_cli.training.steplog import StepLog, read_steps
from atropos_cli.training.summary import EVALUATIONS, checkpoints, plain_name, read_train_plan
from atropos_cli.training.summary import FILE as STATE_FILE
from atropos_cli.training.summary import file_name as suite_file
from atropos_cli.training.summary import summary as run_state

__all__ = [
    "CURVES_FILE",
    "EVALUATIONS",
    "PER_STEP",
    "ROLES",
    "STATE_FILE",
    "MetricsLog",
    "Samples",
    "StepLog",
    "check_data",
    "checkpoints",
    "draw_curves",
    "plain_name",
    "prompt_rows",
    "read_samples",
    "read_steps",
    "read_train_plan",
    "run_state",
    "sample_row",
    "series",
    "spaced",
    "stored_groups",
    "stored_rows",
    "suite_file",
]
