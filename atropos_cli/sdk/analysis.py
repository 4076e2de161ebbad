"""Analysis: tables and charts about stored rollouts."""

from __future__ import annotations

from atropos_cli.ports.analyzer import AnalysisTable, AnalyzedGroup, AnalyzedRollout, Analyzer
from atropos_cli.stats.charts import Chart, Line, histogram
from atropos_cli.stats.streaming import Correlation, Moments, Series

__all__ = [
    "AnalysisTable",
    "AnalyzedGroup",
    "AnalyzedRollout",
    "Analyzer",
    "Chart",
    "Correlation",
    "Line",
    "Moments",
    "Series",
    "histogram",
]
