"""Trajectory servers, as a trainer sees them: the connection, the batches, the folder of weights for others."""

from __future__ import annotations

from atropos_cli.domain.delivery import Pull
from atropos_cli.io.scoreddata import received_group
from atropos_cli.rollout.delivery import TOKEN_VARIABLE, connect
from atropos_cli.rollout.following import MARKER

__all__ = ["MARKER", "TOKEN_VARIABLE", "Pull", "connect", "received_group"]
