"""Why a rollout has no verdict. Each is a failure of that rollout at stage "score", named by its class."""

from __future__ import annotations

from atropos_cli.sdk import AtroposError


class NoVerdict(AtroposError):
    """The judge's reply holds no score in any form that is read."""


class AmbiguousVerdict(NoVerdict):
    """The reply holds several scores that differ, and none of them stands in the last line as asked."""


class OutOfScale(NoVerdict):
    """The score is not on the scale, or is given on another one."""
