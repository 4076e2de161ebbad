"""Outputs of a run: writers of groups, trackers of metrics."""

from __future__ import annotations

from atropos_cli.io.groupfile import GroupFile, ZstGroupFile, encode_group
from atropos_cli.ports.tracker import SAMPLE_COLUMNS, TrackedRun, Tracker
from atropos_cli.ports.writer import Writer
from atropos_cli.tracking.machine import Machine
from atropos_cli.tracking.services import About, Trackers, open_trackers
from atropos_cli.tracking.services import read_ids as tracker_ids

__all__ = [
    "SAMPLE_COLUMNS",
    "About",
    "GroupFile",
    "Machine",
    "TrackedRun",
    "Tracker",
    "Trackers",
    "Writer",
    "ZstGroupFile",
    "encode_group",
    "open_trackers",
    "tracker_ids",
]
