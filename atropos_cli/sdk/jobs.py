"""Jobs: carry out a plan here, submit one through a launcher, ask how it stands."""

from __future__ import annotations

from atropos_cli import __version__ as core_version
from atropos_cli.domain.placeholders import escape as escape_placeholders
from atropos_cli.jobs.asking import cancel as cancel_job
from atropos_cli.jobs.dryrun import show
from atropos_cli.jobs.folder import read_job, read_record, write_job
from atropos_cli.jobs.launchers import make_launcher
from atropos_cli.jobs.placing import LocalPlacer
from atropos_cli.jobs.prepare import Prepared, spec_of, submit
from atropos_cli.jobs.status import view
from atropos_cli.jobs.store import read_submitted
from atropos_cli.jobs.supervisor import run_job

__all__ = [
    "LocalPlacer",
    "Prepared",
    "cancel_job",
    "core_version",
    "escape_placeholders",
    "make_launcher",
    "read_job",
    "read_record",
    "read_submitted",
    "run_job",
    "show",
    "spec_of",
    "submit",
    "view",
    "write_job",
]
