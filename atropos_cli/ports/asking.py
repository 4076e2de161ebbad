"""The models by role of the group that is scored: how a reward asks another model."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

from atropos_cli.ports.environment import RoleModel

current: ContextVar[Mapping[str, RoleModel] | None] = ContextVar("atropos_role_models", default=None)
"""None outside a run; empty in a run while its parts are opened."""


def role_models() -> Mapping[str, RoleModel] | None:
    """The models by role for the reward that is called; None where there are none, as in `atropos score`."""
    return current.get()
