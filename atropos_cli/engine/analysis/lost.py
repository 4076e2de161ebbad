"""Groups of a run that were never written because all of their rollouts failed: read from failures.jsonl.

A group that failed and was made later, after a resume, is in the groups file and does not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from atropos_cli.io.jsonvalue import read_object
from atropos_cli.io.records import Record
from atropos_cli.io.sources import Source


@dataclass(frozen=True, slots=True)
class LostGroup:
    """One such group: its environment (by the plan), the failure, and how many rollouts it would have had."""

    env: str
    reason: str
    rollouts: int


class LostGroups:
    """The failed groups of all run folders among the sources; `seen` takes out those that were written after all."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._groups: dict[tuple[str, str], LostGroup] = {}
        for source in sources:
            if source.run is not None:
                self._read(source.name, source.run)

    def seen(self, record: Record) -> None:
        if self._groups:
            self._groups.pop((record.source, record.id), None)

    def remaining(self) -> Iterator[LostGroup]:
        yield from self._groups.values()

    def _read(self, source: str, run: Path) -> None:
        try:
            plan = read_object(run / "plan.json")
            plan = plan.get("rollouts") or plan
            env, size = str(plan["environment"]["name"]), int(plan["group_size"])
            lines = (run / "failures.jsonl").open("rb")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return
        with lines:
            for line in lines:
                try:
                    failure = json.loads(line)
                except ValueError:
                    continue  # the torn tail of a killed run
                if not isinstance(failure, dict) or failure.get("rollout") is not None:
                    continue
                group = failure.get("group_id")
                if isinstance(group, str):
                    reason = f"{failure.get('stage', '?')}:{failure.get('type', '?')}"
                    self._groups[source, group] = LostGroup(env, reason, size)
