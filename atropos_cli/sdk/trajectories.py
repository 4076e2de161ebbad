"""Trajectory servers, as a trainer sees them: the connection, the batches, the folder of weights for others."""

from __future__ import annotations

from atropos_cli.domain.delivery import Pull
from atropos_cli.io.scoreddata import received_group
from atropos_cli.rollout.delivery import PASSING, TOKEN_VARIABLE, connect
from atropos_cli.rollout.following import MARKER, read_marker

__all__ = ["MARKER", "PASSING", "TOKEN_VARIABLE", "Pull", "connect", "read_marker", "received_group"]
