"""For tools that plugin authors use: installed components, runs without a command line, and jobs of a contract."""

from __future__ import annotations

from atropos_cli.domain.run import FailureRecord
from atropos_cli.domain.task import TASK_NAME
from atropos_cli.jobs.spreading import join_shards, write_shards
from atropos_cli.plugins.checks import check_component
from atropos_cli.plugins.discovery import get_registry, load_registry, reset_registry
from atropos_cli.plugins.records import PluginInfo, Registration
from atropos_cli.plugins.spec import KINDS
from atropos_cli.plugins.trial import try_components
from atropos_cli.rollout.references import named_rewards
from atropos_cli.rollout.rehearsal import REPLY, Rehearsal, rehearse
from atropos_cli.rollout.runner import run_gen

__all__ = [
    "KINDS",
    "REPLY",
    "TASK_NAME",
    "FailureRecord",
    "PluginInfo",
    "Registration",
    "Rehearsal",
    "check_component",
    "get_registry",
    "join_shards",
    "load_registry",
    "named_rewards",
    "rehearse",
    "reset_registry",
    "run_gen",
    "try_components",
    "write_shards",
]
