"""What analysis estimates with: pass@k, pass^k and best of k from `domain.metrics`, and thresholds on rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from atropos_cli.stats.metrics import CountError, expected_best_of_k, pass_at_k, pass_hat_k

__all__ = ["ZERO_SPREAD", "CountError", "Threshold", "expected_best_of_k", "pass_at_k", "pass_hat_k"]

ZERO_SPREAD = 1e-8
"""Rewards closer than this are equal."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A bound on rewards with its operator."""

    value: float
    op: Literal[">", ">="] = ">="

    def reached(self, reward: float) -> bool:
        return reward > self.value if self.op == ">" else reward >= self.value

    def __str__(self) -> str:
        return f"{self.op}{self.value:g}"
