"""Runs: their plans and summaries."""

from __future__ import annotations

from atropos_cli.domain.plan import ComponentRef, Plan, RewardRef
from atropos_cli.domain.run import RunSummary

__all__ = [
    "ComponentRef",
    "Plan",
    "RewardRef",
    "RunSummary",
]
