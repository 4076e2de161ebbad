"""For tools that plugin authors use: installed components, runs without a command line, and jobs of a contract."""

from __future__ import annotations

from atropos_cli.config.settings import GenSettings
from atropos_cli.domain.plan import Execution
from atropos_cli.domain.run import FailureRecord
from atropos_cli.domain.task import TASK_NAME
from atropos_cli.jobs.spreading import join_shards, write_shards
from atropos_cli.plugins.checks import check_component
from atropos_cli.plugins.discovery import get_registry, load_registry, reset_registry
from atropos_cli.plugins.records import PluginInfo, Registration
from atropos_cli.plugins.registry import Registry
from atropos_cli.plugins.spec import KINDS
from atropos_cli.plugins.trial import try_components
from atropos_cli.rollout.planner import build_plan, make_config, named_rewards
from atropos_cli.rollout.rehearsal import REPLY, Rehearsal, rehearse
from atropos_cli.rollout.runner import run_gen
from atropos_cli.rollout.scoring import Scorer

__all__ = [
    "KINDS",
    "REPLY",
    "TASK_NAME",
    "Execution",
    "FailureRecord",
    "GenSettings",
    "PluginInfo",
    "Registration",
    "Registry",
    "Rehearsal",
    "Scorer",
    "build_plan",
    "check_component",
    "get_registry",
    "join_shards",
    "load_registry",
    "make_config",
    "named_rewards",
    "rehearse",
    "reset_registry",
    "run_gen",
    "try_components",
    "write_shards",
]
