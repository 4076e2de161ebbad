"""Analysis: tables and charts about stored rollouts."""

from __future__ import annotations

from atropos_cli.evaluation.evaluation import Evaluation, evaluate, read_evaluation
from atropos_cli.evaluation.evidence import Evidence
from atropos_cli.evaluation.report import cell, estimate
from atropos_cli.evaluation.success import NO_VERDICT, TOLERANCE, SuccessRule, one_verdict, parse_threshold, told_by
from atropos_cli.io.lost import LostTask
from atropos_cli.ports.analyzer import AnalysisTable, AnalyzedGroup, AnalyzedRollout, Analyzer, Cell
from atropos_cli.stats.charts import Chart, Line, histogram
from atropos_cli.stats.estimators import ZERO_SPREAD, CountError, Threshold, expected_best_of_k, pass_at_k, pass_hat_k
from atropos_cli.stats.page import page as chart_page
from atropos_cli.stats.streaming import SAMPLE, Correlation, Moments, Series, finite
from atropos_cli.stats.svg import document as chart_document
from atropos_cli.stats.svg import escape, figure
from atropos_cli.stats.tallies import add_tally, tally_state

__all__ = [
    "NO_VERDICT",
    "SAMPLE",
    "TOLERANCE",
    "ZERO_SPREAD",
    "AnalysisTable",
    "AnalyzedGroup",
    "AnalyzedRollout",
    "Analyzer",
    "Cell",
    "Chart",
    "Correlation",
    "CountError",
    "Evaluation",
    "Evidence",
    "Line",
    "LostTask",
    "Moments",
    "Series",
    "SuccessRule",
    "Threshold",
    "add_tally",
    "cell",
    "chart_document",
    "chart_page",
    "escape",
    "estimate",
    "evaluate",
    "expected_best_of_k",
    "figure",
    "finite",
    "histogram",
    "one_verdict",
    "parse_threshold",
    "pass_at_k",
    "pass_hat_k",
    "read_evaluation",
    "tally_state",
    "told_by",
]
