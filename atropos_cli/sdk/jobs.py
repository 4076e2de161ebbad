"""Jobs: carry out a plan here, submit one through a launcher, ask how it stands."""

from __future__ import annotations

from atropos_cli import __version__ as core_version
from atropos_cli.cli.joborders import make_order, model_of
from atropos_cli.cli.resolve import all_commands, first_mistake
from atropos_cli.domain.placeholders import escape as escape_placeholders
from atropos_cli.jobs.asking import ask as ask_job
from atropos_cli.jobs.asking import cancel as cancel_job
from atropos_cli.jobs.dryrun import show
from atropos_cli.jobs.face import Face, print_submitted
from atropos_cli.jobs.folder import read_job, read_record, write_job
from atropos_cli.jobs.launchers import make_launcher, native_options
from atropos_cli.jobs.network import NoPort, Ports
from atropos_cli.jobs.order import Wanted
from atropos_cli.jobs.placing import LocalPlacer
from atropos_cli.jobs.prepare import Prepared, prepare, spec_of, submit
from atropos_cli.jobs.processes import die_with_parent
from atropos_cli.jobs.status import view
from atropos_cli.jobs.store import SUBMITTED, read_submitted
from atropos_cli.jobs.supervisor import run_job

__all__ = [
    "SUBMITTED",
    "Face",
    "LocalPlacer",
    "NoPort",
    "Ports",
    "Prepared",
    "Wanted",
    "all_commands",
    "ask_job",
    "cancel_job",
    "core_version",
    "die_with_parent",
    "escape_placeholders",
    "first_mistake",
    "make_launcher",
    "make_order",
    "model_of",
    "native_options",
    "prepare",
    "print_submitted",
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
