"""What a run says while it goes: to its reporter, its log and the observers of plugins."""

from __future__ import annotations

import contextlib
from typing import Any

from atropos_cli.errors import DataError
from atropos_cli.io.rundir import RunDir
from atropos_cli.plugins.registry import Registry
from atropos_cli.rollout.report import Reporter


class Telling:
    """run_dir None: there is no log."""

    def __init__(self, reporter: Reporter, run_dir: RunDir | None, registry: Registry) -> None:
        self._reporter, self._run_dir, self._registry = reporter, run_dir, registry

    def event(self, kind: str, message: str) -> None:
        """Say it, and write it into the log."""
        self._reporter.event(kind, message)
        if self._run_dir is not None:
            with contextlib.suppress(DataError):
                self._run_dir.log(kind, message=message)

    def observe(self, hook: str, **arguments: Any) -> None:
        """Call the plugins' hook; what fails there is an event."""
        for problem in self._registry.call_observers(hook, **arguments):
            self.event("plugin", problem.message)
