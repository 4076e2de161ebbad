"""Filter stored rollouts by rules and write the same format back, with a report of the dropped rollouts.

Order of the rules: evaluation data in the prompt; spread of the group; single rollouts (failures, finish
reason, score, length, regular expressions, expressions); duplicates; evaluation data in the completion;
best of the group; size of what is left of the group; caps over all data. A rollout is counted under the
first rule that drops it. One pass, in constant memory; caps take a second pass over what survived.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atropos_cli.datasets.choices import Choices
from atropos_cli.datasets.filter.caps import Caps
from atropos_cli.datasets.filter.decontamination import EvaluationIndex
from atropos_cli.datasets.filter.dedup import EXACT, DuplicatesElsewhere, ExactDuplicates, NearDuplicates
from atropos_cli.datasets.filter.presence import Presence
from atropos_cli.datasets.filter.report import FilterReport, tally_of
from atropos_cli.datasets.filter.rules import EMPTY, NO_SCORE, Ranges, group_rules, rollout_rules
from atropos_cli.datasets.filter.selection import ranked
from atropos_cli.datasets.filter.spec import FilterSpec
from atropos_cli.errors import DataError
from atropos_cli.io.formats import FORMATS
from atropos_cli.io.formats.atropos import PARALLEL, parallel_keys
from atropos_cli.io.grouping import group_rows
from atropos_cli.io.jsonvalue import dump, parse
from atropos_cli.io.readers import ReadLog, ReadOptions, read_records
from atropos_cli.io.records import Record, StoredRollout
from atropos_cli.io.sources import Source
from atropos_cli.stats.tallies import add_tally, tally_state


class Filter:
    """The rules of a spec, applied record by record. `report` grows with every record."""

    def __init__(
        self, spec: FilterSpec, log: ReadLog, ranges: Ranges | None = None, choices: Choices | None = None
    ) -> None:
        self.spec = spec
        self.report = FilterReport()
        self._log = log
        self._group_rules = group_rules(spec)
        self._presence = Presence("rollouts")
        self._rollout_rules = rollout_rules(spec, ranges, self._presence, self._expression_error)
        self._exact = ExactDuplicates(spec.dedup_scope) if spec.dedup != "none" else None
        self._near = NearDuplicates(spec.near_threshold, spec.dedup_scope) if spec.dedup == "near" else None
        self._elsewhere: DuplicatesElsewhere | None = None
        if choices is not None and spec.dedup != "none":
            self._elsewhere = DuplicatesElsewhere(choices, spec.dedup_scope, self._near)
            self._exact = self._near = None
        self._evaluation: EvaluationIndex | None = None
        if spec.decontaminate:
            self._evaluation = EvaluationIndex(spec.ngram)
            self._evaluation.add_files(spec.decontaminate, ReadLog(warn=log.warn))

    def _expression_error(self, record: Record, text: str) -> None:
        self._log.tell("expression", f"{record.where}: {text}")

    def survivors(self, record: Record) -> list[StoredRollout]:
        """The rollouts that pass all rules but the caps, in their order; the report counts the others."""
        known = [rollout.score for rollout in record.rollouts if rollout.score is not None]
        for tally in self.report.tallies(record):
            tally.see(len(record.rollouts), known)
        if not record.rollouts:
            self.report.dropped[EMPTY] += 1
            return []
        reason = self._group_reason(record)
        if reason is not None:
            self.report.dropped[reason] += len(record.rollouts)
            return []
        kept = record.rollouts
        for test in self._rollout_rules:
            kept = self._passing(kept, record, test)
        if self._elsewhere is not None:
            kept = self._told(kept, record, self._elsewhere)
        if self._exact is not None:
            exact = self._exact
            kept = self._true(kept, "duplicate", lambda rollout: exact.is_new(record, rollout))
        if self._near is not None:
            near = self._near
            kept = self._true(kept, "near duplicate", lambda rollout: near.is_new(record, rollout))
        if self._evaluation is not None:
            kept = self._decontaminated(self._evaluation, record, kept)
        return self._select(record, kept)

    def _group_reason(self, record: Record) -> str | None:
        if self._evaluation is not None and not self._evaluation.prompt_is_clean(record):
            return "evaluation data in the prompt"
        return next((reason for reason, test in self._group_rules if not test(record)), None)

    def _passing(
        self, rollouts: Sequence[StoredRollout], record: Record, test: Callable[[Record, StoredRollout], str | None]
    ) -> list[StoredRollout]:
        kept = []
        for rollout in rollouts:
            reason = test(record, rollout)
            if reason is None:
                kept.append(rollout)
            else:
                self.report.dropped[reason] += 1
                if reason is NO_SCORE and not record.non_finite:
                    self._log.tell("no score", f"{record.where}: rollout {rollout.index} has no score")
        return kept

    def _true(
        self, rollouts: list[StoredRollout], reason: str, test: Callable[[StoredRollout], bool]
    ) -> list[StoredRollout]:
        kept = [rollout for rollout in rollouts if test(rollout)]
        if len(kept) < len(rollouts):
            self.report.dropped[reason] += len(rollouts) - len(kept)
        return kept

    def _told(
        self, rollouts: list[StoredRollout], record: Record, elsewhere: DuplicatesElsewhere
    ) -> list[StoredRollout]:
        kept = []
        for rollout in rollouts:
            verdict = elsewhere.verdict(record, rollout)
            if verdict:
                self.report.dropped["duplicate" if verdict == EXACT else "near duplicate"] += 1
            else:
                kept.append(rollout)
        return kept

    def _decontaminated(
        self, evaluation: EvaluationIndex, record: Record, rollouts: list[StoredRollout]
    ) -> list[StoredRollout]:
        kept = []
        for rollout in rollouts:
            place = evaluation.place_in(record, rollout)
            if place is None:
                kept.append(rollout)
            else:
                self.report.dropped[f"evaluation data in the {place}"] += 1
        return kept

    def _select(self, record: Record, kept: list[StoredRollout]) -> list[StoredRollout]:
        n = 1 if self.spec.best_of_n else self.spec.top_k
        if n is not None and len(kept) > n:
            lengths = [len(rollout.completion_text) for rollout in kept] if self.spec.best_of_n else None
            chosen = set(ranked([rollout.score for rollout in kept], lengths)[:n])
            self.report.dropped["best of the group" if n == 1 else f"top {n} of the group"] += len(kept) - len(chosen)
            kept = [rollout for i, rollout in enumerate(kept) if i in chosen]
        if kept and self.spec.min_group is not None and len(kept) < self.spec.min_group:
            self.report.dropped[f"groups of at least {self.spec.min_group}"] += len(kept)
            return []
        return kept

    def keep(self, record: Record, kept: Sequence[StoredRollout], *, new_group: bool) -> None:
        """Count what goes to the output."""
        for tally in self.report.tallies(record):
            tally.rollouts_kept += len(kept)
            tally.groups_kept += new_group
        if record.format == "atropos" and len(kept) < len(record.rollouts):
            self.report.cut_fields.update(parallel_keys(record.raw, len(record.rollouts)))

    def count_class(self, record: Record) -> None:
        """Check that a rollout to balance has the field that it is balanced by."""
        if self.spec.balance in ("env", "task_name"):
            there = (record.env if self.spec.balance == "env" else record.task_name) is not None
            note = ": they are balanced as one kind of their own"
            self._presence.see(f"--balance {self.spec.balance}", self.spec.balance, there=there, note=note)

    def tally(self) -> dict[str, Any]:
        """The counts, for `absorb`."""
        tallies = {"name": self.report.by_name, "env": self.report.by_env}
        return {
            "counts": tally_state(self.report, "dropped", "cut_fields"),
            "total": self.report.total.as_row(),
            "tallies": {kind: [[name, one.as_row()] for name, one in table.items()] for kind, table in tallies.items()},
            "presence": self._presence.tally(),
            "evaluation": None if self._evaluation is None else self._evaluation.tally(),
        }

    def absorb(self, state: dict[str, Any]) -> None:
        """Add the counts of another part of the input."""
        add_tally(self.report, state["counts"])
        self.report.total.absorb(state["total"])
        for kind, table in (("name", self.report.by_name), ("env", self.report.by_env)):
            for name, row in state["tallies"][kind]:
                tally_of(table, name).absorb(row)
        self._presence.absorb(state["presence"])
        if self._evaluation is not None:
            self._evaluation.absorb(state["evaluation"])

    def finish(self) -> FilterReport:
        """The report with its warnings. Raises DataError for scores or names that are asked for and nowhere there."""
        report = self.report
        report.warnings += self._presence.check()
        if self.spec.uses_scores and report.total.rollouts and not report.total.scored:
            raise DataError(
                f"none of the {report.total.rollouts} rollouts has a score, and the filter needs scores",
                hint="score them first: atropos score FILE --reward NAME -o SCORED",
            )
        if self.spec.thresholds and self.spec.normalize == "none" and len(report.by_env) > 1:
            ranges = ", ".join(
                f"{name}: {tally.score_min:g} to {tally.score_max:g}"
                for name, tally in list(report.by_env.items())[:8]
                if tally.score_min is not None and tally.score_max is not None
            )
            report.warnings.append(
                f"one score threshold over {len(report.by_env)} environments ({ranges}): "
                "their scores may not be comparable; see --normalize env, or --where with the environment's name"
            )
        unknown = sorted(report.cut_fields - PARALLEL)
        if unknown:
            report.warnings.append(f"fields with one entry for each rollout were cut alike: {', '.join(unknown)}")
        if self._evaluation is not None:
            report.decontamination = self._evaluation.as_json()
            report.warnings += self._evaluation.warnings()
        return report


@dataclass(frozen=True, slots=True)
class FilterJob:
    """Sources, how to read them, and the rules. group_rows: join rows of one rollout by their task first.

    choices: finds duplicates, where the sources are a part of the data.
    """

    sources: Sequence[Source]
    spec: FilterSpec
    read: ReadOptions = field(default_factory=ReadOptions)
    group_rows: bool = False
    scratch: Path | None = None
    choices: Choices | None = None


Write = Callable[[bytes, Record], None]


def prepare_filter(job: FilterJob, log: ReadLog) -> Filter:
    """The rules, with all that they need before the first record."""
    ranges = _ranges(job) if job.spec.normalize == "env" and job.spec.thresholds else None
    work = Filter(job.spec, log, ranges, job.choices)
    work.report.rules = describe(job.spec)
    return work


def filter_records(job: FilterJob, work: Filter, log: ReadLog, write: Write) -> None:
    """The pass over the records; `write` gets each line to keep."""
    records: Iterable[Record] = read_records(job.sources, job.read, log)
    if job.group_rows:
        records = group_rows(records, folder=job.scratch)
    if job.spec.max_per_task is not None or job.spec.balance != "none":
        _filter_in_two_passes(job, work, records, write)
    else:
        for record in records:
            kept = work.survivors(record)
            if kept:
                _write(work, record, kept, write)


def _write(
    work: Filter, record: Record, kept: Sequence[StoredRollout], write: Write, *, new_group: bool = True
) -> bool:
    lines = record.to_lines(kept)
    if lines:
        work.keep(record, kept, new_group=new_group)
        for line in lines:
            write(line, record)
    else:
        work.report.dropped["the other half of the pair was dropped"] += len(kept)
    return bool(lines)


def _ranges(job: FilterJob) -> Ranges:
    """A pass of its own: lowest and highest score of each environment."""
    found: Ranges = {}
    presence = Presence()
    for record in read_records(job.sources, job.read, ReadLog()):
        known = [score for score in record.scores if score is not None]
        presence.see("--normalize env", "env", there=record.env is not None)
        if known:
            env = record.env or ""
            low, high = found.get(env, (known[0], known[0]))
            found[env] = (min(low, *known), max(high, *known))
    presence.check()
    return found


def _filter_in_two_passes(job: FilterJob, work: Filter, records: Iterable[Record], write: Write) -> None:
    caps = Caps(job.spec)
    with tempfile.TemporaryFile(dir=job.scratch, prefix="atropos-filter-") as spool:
        for number, record in enumerate(records):
            kept = work.survivors(record)
            lines = record.to_lines(kept)
            if kept and not lines:
                work.report.dropped["the other half of the pair was dropped"] += len(kept)
            if not lines:
                continue
            for rollout in kept:
                work.count_class(record)
                caps.add(record, rollout)
            # Rows joined to a group are spooled one by one, each with its one rollout.
            head = dump([record.format, record.source, record.line, number])
            spool.writelines(head + b"\n" + line + b"\n" for line in lines)
        caps.decide()
        spool.seek(0)
        place = 0
        written = -1
        for number, record in _spooled(spool):
            kept = []
            for rollout in record.rollouts:
                reason = caps.reason(place)
                place += 1
                if reason is None:
                    kept.append(rollout)
                else:
                    work.report.dropped[reason] += 1
            if kept and _write(work, record, kept, write, new_group=number != written):
                written = number


def _spooled(spool: Any) -> Iterator[tuple[int, Record]]:
    while head := spool.readline():
        name, source, line, number = parse(head)[0]
        text = spool.readline().rstrip(b"\n")
        record = FORMATS[name].read(parse(text)[0], source, line)
        record.line_bytes = text
        yield number, record


def describe(spec: FilterSpec) -> list[str]:
    """The rules in words, thresholds with their operator, in the order in which they are applied."""
    rules = []
    if spec.decontaminate:
        rules.append(f"no {spec.ngram}-gram and no short question of {', '.join(spec.decontaminate)}")
    if spec.drop_equal:
        rules.append("scores of the group differ")
    if spec.min_spread is not None:
        rules.append(f"group spread >= {spec.min_spread:g}")
    rules += ["not failed"] * spec.drop_failed + ["not truncated"] * spec.drop_truncated
    if spec.finish_reasons:
        rules.append(f"finish reason {' or '.join(spec.finish_reasons)}")
    suffix = "" if spec.normalize == "none" else f" (of the {spec.normalize}'s range)"
    rules += [f"score {op} {value:g}{suffix}" for op, value in spec.thresholds]
    if spec.min_gap is not None:
        rules.append(f"score > group's worst + {spec.min_gap:g}")
    for unit in ("chars", "words", "tokens"):
        low, high = getattr(spec, f"min_{unit}"), getattr(spec, f"max_{unit}")
        rules += [f"{unit} >= {low}"] * (low is not None) + [f"{unit} <= {high}"] * (high is not None)
    rules += [f"match {pattern!r}" for pattern in spec.match]
    rules += [f"no match {pattern!r}" for pattern in spec.no_match]
    rules += [f"where {text}" for text in spec.where]
    if spec.dedup != "none":
        near = f", similarity < {spec.near_threshold:g}" if spec.dedup == "near" else ""
        rules.append(f"no {spec.dedup} duplicates ({spec.dedup_scope}{near})")
    if spec.best_of_n or spec.top_k is not None:
        rules.append("best of the group" if spec.best_of_n else f"top {spec.top_k} of the group")
    if spec.min_group is not None:
        rules.append(f"groups of at least {spec.min_group}")
    if spec.max_per_task is not None:
        rules.append(f"at most {spec.max_per_task} a task, by {spec.cap_by}")
    if spec.balance != "none":
        rules.append(f"equal numbers by {spec.balance}, by {spec.cap_by}")
    return rules
