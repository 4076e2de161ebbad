"""What an analysis is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from atropos_cli.analysis.success import SuccessRule
from atropos_cli.stats.estimators import Threshold


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """ks: None for 1, 2, 4, ... up to the number of rollouts. top: tasks listed from either end.

    count_failed: failed rollouts count as unsuccessful in pass@k instead of being left out.
    """

    success: SuccessRule = field(default_factory=SuccessRule)
    thresholds: tuple[Threshold, ...] = (Threshold(0.0, ">"), Threshold(0.5), Threshold(1.0))
    ks: tuple[int, ...] | None = None
    top: int = 5
    count_failed: bool = False
