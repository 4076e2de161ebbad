"""What an evaluation counts: the groups of a run, and the tasks that have none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.group import ScoredGroup, parse_group_id
from atropos_cli.domain.run import RunSummary
from atropos_cli.io.lost import LostTask, lost_tasks, run_facts
from atropos_cli.io.sources import find_sources
from atropos_cli.rollout.sessions import read_group


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run to count: its groups, the tasks that failed as a whole, how many tasks were asked for.

    lost is read after the groups. total: None where only the groups tell.
    """

    groups: Iterable[ScoredGroup]
    lost: Iterable[LostTask] = ()
    total: int | None = None
    reward_details: Mapping[str, JsonDict] = field(default_factory=dict)
    cost: float | None = None
    currency: str | None = None

    @staticmethod
    def of_run(folder: Path) -> Evidence:
        """A run folder, plain or compressed. Raises DataError."""
        summary = RunSummary.model_validate_json((folder / "summary.json").read_bytes())
        facts = run_facts(folder)
        written: set[int] = set()

        def groups() -> Iterator[ScoredGroup]:
            for source in find_sources([str(folder)]):
                with source.open() as file:
                    for line in file:
                        group = read_group(line, source.name)
                        written.add(parse_group_id(group.group_id)[1])
                        yield group

        def lost() -> Iterator[LostTask]:
            if facts is not None:
                yield from lost_tasks(folder, facts, written.__contains__)

        money = summary.cost, summary.currency
        return Evidence(groups(), lost(), summary.groups_total, summary.reward_details, *money)
