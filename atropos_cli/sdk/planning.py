"""Commands with settings of rollouts, whose plans can be stored: as a job, or for `atropos run FOLDER`.

flags       made from the models of settings, environment, backend and rewards; values merged from files and variables
plans       a command hands its PlannedRun to `session.take`; a PlanRunner executes the stored plan
progress    a status line on a terminal, plain lines elsewhere
"""

from __future__ import annotations

from atropos_cli.cli.environments import (
    gen_buckets,
    gen_settings,
    named,
    pick_backend,
    resolve_settings,
    settings_command,
)
from atropos_cli.cli.lazy import Group, new_app
from atropos_cli.cli.options import TRACKING_PANEL, backend_flags, settings_flags, signature_of, taken_names
from atropos_cli.cli.progress import PLAIN_EVERY, Window, duration, plain_line
from atropos_cli.cli.rewards import reward_buckets, reward_flags
from atropos_cli.cli.roles import role_buckets, role_flags
from atropos_cli.cli.runs import execute_part, flattened, resuming
from atropos_cli.cli.toolsources import tools_buckets
from atropos_cli.config.buckets import SETTINGS, settings_bucket
from atropos_cli.config.environmenttext import read_environment_text
from atropos_cli.config.resolve import Resolved
from atropos_cli.config.sources import Bucket
from atropos_cli.console.commands import Flag, entries_of
from atropos_cli.console.ending import EASIER, HARDER
from atropos_cli.console.output import is_rich_terminal, printable
from atropos_cli.console.statusline import StatusLine
from atropos_cli.domain.runplan import RunPlan
from atropos_cli.jobs.order import PlannedRun, is_planner, makes_plan
from atropos_cli.ports.plans import Begin, PlanRunner, StoredRun
from atropos_cli.runs.tracked import tracked

__all__ = [
    "EASIER",
    "HARDER",
    "PLAIN_EVERY",
    "SETTINGS",
    "TRACKING_PANEL",
    "Begin",
    "Bucket",
    "Flag",
    "Group",
    "PlanRunner",
    "PlannedRun",
    "Resolved",
    "RunPlan",
    "StatusLine",
    "StoredRun",
    "Window",
    "backend_flags",
    "duration",
    "entries_of",
    "execute_part",
    "flattened",
    "gen_buckets",
    "gen_settings",
    "is_planner",
    "is_rich_terminal",
    "makes_plan",
    "named",
    "new_app",
    "pick_backend",
    "plain_line",
    "printable",
    "read_environment_text",
    "resolve_settings",
    "resuming",
    "reward_buckets",
    "reward_flags",
    "role_buckets",
    "role_flags",
    "settings_bucket",
    "settings_command",
    "settings_flags",
    "signature_of",
    "taken_names",
    "tools_buckets",
    "tracked",
]
