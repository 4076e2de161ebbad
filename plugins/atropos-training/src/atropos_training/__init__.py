"""Manifest of atropos-training: the command `atropos train`, and who executes its stored plans. Imports nothing heavy.

train, options, settings     the command: flags of a method, merged settings, how the run ends
build, stored                the plan of a training, and a stored one executed elsewhere
run, processes, ranks        one training from start to end, on one process or several
session, answers, order, overlap, suites   what a trainer is given: groups, rows, rewards, evaluations
recording, health, watching, progress      its records, and its progress on the screen
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atropos_cli.sdk import hookimpl

if TYPE_CHECKING:
    from atropos_cli.sdk.planning import PlanRunner


@hookimpl
def atropos_open_plan(command: str) -> PlanRunner | None:
    """Plans of `atropos train`."""
    if command != "train":
        return None
    from atropos_training.stored import StoredTraining

    return StoredTraining()
