"""The error that fails one rollout when its game cannot go on."""

from __future__ import annotations

from atropos_cli.sdk import AtroposError


class EngineError(AtroposError):
    """A game could not be built, or could not be played on."""
