"""The rollout engine, for commands that roll out tasks of their own choice, as `atropos train` does at each step.

A Player plays the tasks of one plan with a backend that it is given, on the event loop of a LoopThread; the rest makes
such a plan from settings, and its components from the plan.
"""

from __future__ import annotations

from atropos_cli.config.settings import GenSettings
from atropos_cli.domain.group import make_group_id
from atropos_cli.domain.plan import Execution
from atropos_cli.domain.tracking import RolloutTracking, Tracking
from atropos_cli.plugins.files import names_a_file
from atropos_cli.plugins.registry import Registry
from atropos_cli.rollout.backends import close_part, open_backend
from atropos_cli.rollout.backends import make_backend as backend_of
from atropos_cli.rollout.hosting import Hosted, HostedEpisode, check_hosted
from atropos_cli.rollout.loopthread import LoopThread
from atropos_cli.rollout.mixture import Mixture, Shares
from atropos_cli.rollout.planner import (
    LOCAL_BACKEND,
    SERVER_BACKEND,
    build_plan,
)
from atropos_cli.rollout.player import OnFailure, Player
from atropos_cli.rollout.references import component_rewards, find_rewards, make_config, own_rewards, public_options
from atropos_cli.rollout.report import Rolling
from atropos_cli.rollout.scoring import Scorer
from atropos_cli.rollout.stopping import Abort
from atropos_cli.rollout.supply import CurriculumReader
from atropos_cli.rollout.systematic import FailureWatch
from atropos_cli.rollout.tasks import TaskReader, check_split

__all__ = [
    "LOCAL_BACKEND",
    "SERVER_BACKEND",
    "Abort",
    "CurriculumReader",
    "Execution",
    "FailureWatch",
    "GenSettings",
    "Hosted",
    "HostedEpisode",
    "LoopThread",
    "Mixture",
    "OnFailure",
    "Player",
    "Registry",
    "Rolling",
    "RolloutTracking",
    "Scorer",
    "Shares",
    "TaskReader",
    "Tracking",
    "backend_of",
    "build_plan",
    "check_hosted",
    "check_split",
    "close_part",
    "component_rewards",
    "find_rewards",
    "make_config",
    "make_group_id",
    "names_a_file",
    "open_backend",
    "own_rewards",
    "public_options",
]
