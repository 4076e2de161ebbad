"""What ends a run before its last group, raised where requests wait. No plugin swallows it by accident."""

from __future__ import annotations

from atropos_cli.errors import AtroposError


class Draining(BaseException):
    """The run is being stopped, and this group has not begun to cost anything."""


class Abort(BaseException):
    """The whole run must end with `error`. Not an Exception, so that no plugin swallows it by accident."""

    def __init__(self, error: AtroposError) -> None:
        super().__init__(str(error))
        self.error = error
