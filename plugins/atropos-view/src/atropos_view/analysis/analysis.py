"""One pass over rollouts, and the report that comes out of it.

    with Analysis(options) as analysis:
        for record in read_records(...):
            analysis.add(record)
        report = analysis.report()

Everything is kept apart by environment. Memory is bounded: quantiles come from a sample of at most 10,000
values, totals by task go to temporary files beyond 100,000 tasks.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from atropos_cli.sdk import DataError
from atropos_cli.sdk.analysis import SuccessRule, one_verdict
from atropos_cli.sdk.data import LostGroups, Record, StoredRollout, dump_json, parse_json, text_of
from atropos_view.analysis.environment import OTHERS, Environment, is_group
from atropos_view.analysis.keyed import KeyedTotals
from atropos_view.analysis.options import AnalysisOptions
from atropos_view.analysis.plugged import FindAnalyzers, Plugged
from atropos_view.analysis.report import EnvironmentReport
from atropos_view.analysis.totals import EpisodeTotal, TaskTotal

NO_ENVIRONMENT = "(no environment)"
"""The name of rollouts whose file names no environment."""

ENVIRONMENTS = 200
"""Environments that are told apart; of later ones only the rollouts are counted."""

_LABEL = 100


@dataclass(frozen=True, slots=True)
class Report:
    """The environments by name, and remarks about all of them."""

    environments: dict[str, EnvironmentReport]
    notes: list[str]

    def as_json(self) -> dict[str, Any]:
        environments = {name: report.as_json() for name, report in self.environments.items()}
        return {"environments": environments, "notes": self.notes}


class Analysis:
    """Collects records. Use as a context: it may hold temporary files."""

    def __init__(
        self,
        options: AnalysisOptions | None = None,
        lost: LostGroups | None = None,
        find_analyzers: FindAnalyzers | None = None,
    ) -> None:
        """find_analyzers: what plugins add for an environment; asked once for each that groups name."""
        self.options = options or AnalysisOptions()
        self._find_analyzers = find_analyzers
        self.others = 0
        self.skipped: dict[str, None] = {}
        self._lost = lost or LostGroups(())
        self._environments: dict[str, Environment] = {}
        self._stack = ExitStack()
        self._tasks: KeyedTotals[TaskTotal] = KeyedTotals(TaskTotal)
        self._episodes: KeyedTotals[EpisodeTotal] = KeyedTotals(EpisodeTotal)

    def __enter__(self) -> Self:
        self._stack.enter_context(self._tasks)
        self._stack.enter_context(self._episodes)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def add(self, record: Record, wanted: Collection[str] = ()) -> None:
        """Count a record. wanted: names of environments; all when empty."""
        self._lost.seen(record)
        name = record.env or record.task_name or NO_ENVIRONMENT
        if wanted and name not in wanted:
            if len(self.skipped) < ENVIRONMENTS:
                self.skipped.setdefault(name)
            return
        environment = self._environment(name)
        if environment is None:
            self.others += len(record.rollouts)
            return
        environment.add(record)
        facts = self._lost.facts(record.source)
        environment.differences.add(record, facts.options if facts is not None else None)
        if environment.plugged is not None:
            environment.plugged.add(record)
        self._count(record, environment)

    def state(self, file: Path) -> dict[str, Any]:
        """The counts, for `absorb`; totals by task and episode go to the file. It ends the counting."""
        with file.open("wb") as lines:
            for kind, totals in (("task", self._tasks), ("episode", self._episodes)):
                for key, total in totals.items():
                    lines.write(dump_json([kind, key, total.as_row()]) + b"\n")
        return {
            "others": self.others,
            "skipped": list(self.skipped),
            "lost": self._lost.state(),
            "environments": [[name, found.state()] for name, found in self._environments.items()],
            "totals": str(file),
        }

    def absorb(self, state: dict[str, Any]) -> None:
        """Add the counts of a later part of the records."""
        self.others += state["others"]
        self.skipped.update(dict.fromkeys(state["skipped"][: max(0, ENVIRONMENTS - len(self.skipped))]))
        self._lost.absorb(state["lost"])
        for name, told in state["environments"]:
            environment = self._environment(name)
            if environment is None:
                self.others += told["counts"]["rollouts"]
            else:
                environment.absorb(told)
        with Path(state["totals"]).open("rb") as lines:
            for line in lines:
                kind, key, row = parse_json(line)[0]
                if row[0] not in self._environments:
                    continue
                if kind == "task":
                    self._tasks.put(key, TaskTotal.from_row(row))
                else:
                    self._episodes.put(key, EpisodeTotal.from_row(row))

    def report(self, wanted: Collection[str] = ()) -> Report:
        """What was counted. The stream has ended: nothing can be added afterwards.

        Raises DataError when the verdict that the success rule names is nowhere.
        """
        for lost in self._lost.remaining():
            name = lost.env or NO_ENVIRONMENT
            environment = self._environment(name) if not wanted or name in wanted else None
            if environment is not None:
                environment.lose(lost)
                if environment.turn_groups:  # what failed would have been the first turn of an episode
                    lost.turn, lost.episode_id = 0, lost.id
                self._count(lost, environment)
        for _, episode in self._episodes.items():
            if episode.task:
                self._tasks.get(episode.task).judge(episode)
        reports = {
            name: EnvironmentReport(environment, self.options) for name, environment in self._environments.items()
        }
        for _, task in self._tasks.items():
            if task.rows:
                reports[task.env].environment.add_row_task(task.scored, task.worst, task.best)
        # The rule of success may be the highest reward, which is known only now: hence a second look at the tasks.
        for key, task in self._tasks.items():
            reports[task.env].add_task(key, task)
        for _, episode in self._episodes.items():
            reports[episode.env].add_episode(episode)
        notes = [note for report in reports.values() for note in report.plugin_notes]
        notes += self._verdict_notes()
        if self.others:
            notes.append(f"{self.others} rollouts of further environments ({OTHERS}) are not analysed: --env names one")
        if len(reports) > 1:
            notes.append("rewards of different environments are never put together: their scales may differ")
        return Report(reports, notes)

    def _verdict_notes(self) -> list[str]:
        name = self.options.success.field
        found = self._environments.values()
        judged = sum(environment.rollouts - environment.failed for environment in found)
        lacking = judged - sum(environment.own_fields.total() for environment in found)
        if name is None or not lacking:
            return []
        if lacking == judged:
            raise DataError(
                f"--success field:{name}: none of the {judged} rollouts has a {name} that is true or false",
                hint='name another field of the rollout, its info or its metrics, or a threshold: --success ">=0.5"',
            )
        return [f"{lacking} of {judged} rollouts have no {name}: they are in no share of successes"]

    def _environment(self, name: str) -> Environment | None:
        found = self._environments.get(name)
        if found is None and len(self._environments) < ENVIRONMENTS:
            found = self._environments[name] = Environment(name, self.options.thresholds)
            if self._find_analyzers is not None:
                found.plugged = Plugged(*self._find_analyzers(name))
        return found

    def _count(self, record: Record, environment: Environment) -> None:
        """Add a record to its task, and to its episode."""
        key = f"{environment.name}\n{record.task_key}"
        total = self._tasks.get(key)
        if not total.rollouts:
            total.env = environment.name
            total.label = task_label(record)
        if record.turn is not None:
            total.turns += 1
        elif not is_group(record):
            total.rows += len(record.rollouts)
        facts = self._lost.facts(record.source)
        marks = facts.full_marks if facts is not None else None
        for rollout in record.rollouts:
            total.rollouts += 1
            _add(total, record, rollout, self.options.success, marks, environment)
        if record.episode_id is not None:
            self._episode(record, environment, key)

    def _episode(self, record: Record, environment: Environment, task: str) -> None:
        episode = self._episodes.get(f"{environment.name}\n{record.source}\n{record.episode_id}")
        episode.env = environment.name
        episode.turns += 1
        alive = [rollout for rollout in record.rollouts if rollout.failure is None]
        rewards = [rollout.score for rollout in alive if rollout.score is not None]
        if rewards:
            episode.scored += 1
            episode.total += sum(rewards) / len(rewards)
        if record.turn is None:
            return
        episode.task = task
        episode.broken = not alive
        verdicts = [self.options.success.own_verdict(record, rollout) for rollout in alive]
        found = one_verdict([verdict for verdict in verdicts if verdict is not None])
        if found is not None:
            environment.own_fields[found[0]] += 1
            episode.verdict = found[1]


def _add(
    total: TaskTotal,
    record: Record,
    rollout: StoredRollout,
    rule: SuccessRule,
    marks: float | None,
    environment: Environment,
) -> None:
    if rollout.failure is not None:
        total.failed += 1
        return
    if rollout.score is not None:
        total.add_reward(rollout.score)
        if rule.threshold is not None and rule.threshold.reached(rollout.score):
            total.reached += 1
    verdict = rule.verdict(record, rollout, marks) if record.turn is None else None
    if verdict is not None:
        environment.own_fields[verdict[0]] += 1
        total.own += 1
        total.own_yes += verdict[1]


def task_label(record: Record) -> str:
    """The task's id, else the beginning of its last question, else the record's id."""
    if record.task_id is not None:
        return record.task_id[:_LABEL]
    for message in reversed(record.prompt):
        text = " ".join(text_of(message)[: 4 * _LABEL].split())
        if text and message["role"] != "system":
            return text[: _LABEL - 1] + "…" if len(text) > _LABEL else text
    return record.id[:_LABEL]
