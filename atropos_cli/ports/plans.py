"""Stored plans: how one is executed that a plugin's command resolved, here or when a job was submitted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Begin = Literal["new", "resume", "overwrite"]
"""How a folder that holds a run is treated: as an error, a run to resume, or one to replace."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A call of `atropos run`. path: the plan.json. urls, trajectories: of servers, instead of those in the plan.

    processes: how many to start on this host. dry_run: print the plan and stop.
    """

    path: Path
    folder: Path
    urls: tuple[str, ...] = ()
    trajectories: str | None = None
    processes: int = 1
    begin: Begin = "resume"
    dry_run: bool = False
    as_json: bool = False


class PlanRunner(ABC):
    """Executes the stored plans of one command."""

    @abstractmethod
    def run(self, stored: StoredRun, session: Any) -> int:
        """Execute the plan in its folder, an unfinished run there is resumed; the exit code. Raises AtroposError.

        session: the Session of this call of the program, as commands get it.
        """
