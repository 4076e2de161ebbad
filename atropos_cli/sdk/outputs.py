"""Outputs of a run: writers of groups, trackers of metrics."""

from __future__ import annotations

from atropos_cli.io.groupfile import GroupFile, ZstGroupFile, encode_group
from atropos_cli.ports.tracker import SAMPLE_COLUMNS, TrackedRun, Tracker
from atropos_cli.ports.writer import Writer

__all__ = [
    "SAMPLE_COLUMNS",
    "GroupFile",
    "TrackedRun",
    "Tracker",
    "Writer",
    "ZstGroupFile",
    "encode_group",
]
