"""Where a component runs: what the supervisor asks of a placer.

The supervisor decides when; a placer starts one component on one node. In every case the program that is
started is `python -m atropos_cli.engine.jobs.node FOLDER NAME`, the component's parent on its node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from atropos_cli.domain.job import Component


class Placed(Protocol):
    """A component that was started."""

    def poll(self) -> int | None:
        """The exit code of its parent on the node (that of the component), None while it runs."""

    def stop(self) -> None:
        """Ask politely (SIGTERM to the program); returns at once."""

    def kill(self) -> None:
        """End it and everything it started, now."""


class Placer(Protocol):
    """Starts components. nodes: names of the nodes, in the order that Component.node counts."""

    nodes: tuple[str, ...]

    def start(self, component: Component, folder: Path, log: Path) -> Placed:
        """Start a component of the plan in `folder`; what it prints is appended to `log`.

        Raises LaunchError when it cannot even be tried.
        """
