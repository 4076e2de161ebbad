"""Join shards of one run into a run, or data files of one format into a file.

Runs: all shards must have the same plan (its digest). A task that two shards hold is taken from the first;
when its groups differ in content, that is reported. Tasks whose last group is missing (a killed writer)
are left out, so the merged run can be resumed.

Files: rows are joined in order. A row that is equal to an earlier one with the same id is dropped; rows
that share an id but differ are both kept, and reported, because an id may name the task only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.group import parse_group_id
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.run import RunSummary
from atropos_cli.errors import DataError
from atropos_cli.io.groupfile import read_header
from atropos_cli.io.jsonvalue import read_object
from atropos_cli.io.lost import RunFacts, lost_tasks
from atropos_cli.io.readers import ReadLog, ReadOptions, read_records
from atropos_cli.io.records import Record
from atropos_cli.io.rundir import RunDir, check_same_plan, read_plan
from atropos_cli.io.sources import Source
from atropos_cli.rollout.sessions import RunTotals, Sessions, read_group, stored_sessions
from atropos_cli.rollout.totals import Totals

_SHOWN = 20


@dataclass(slots=True)
class MergeReport:
    """The result of merging. conflicts: ids whose content differs (the first few), doubles: dropped, torn: left out."""

    inputs: list[str] = field(default_factory=list)
    kept: int = 0
    doubles: int = 0
    conflict_count: int = 0
    conflicts: list[str] = field(default_factory=list)
    torn: int = 0
    missing: int | None = None
    by_input: Counter[str] = field(default_factory=Counter)

    def conflict(self, text: str) -> None:
        self.conflict_count += 1
        if len(self.conflicts) < _SHOWN:
            self.conflicts.append(text)

    def as_json(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "kept": self.kept,
            "doubles": self.doubles,
            "conflicts": self.conflict_count,
            "conflict_examples": self.conflicts,
            "torn": self.torn,
            "missing": self.missing,
            "by_input": dict(self.by_input),
        }


def merge_files(
    sources: Sequence[Source], read: ReadOptions, log: ReadLog, write: Callable[[bytes, Record], None]
) -> MergeReport:
    """Join files of one format. Raises DataError when the formats differ, or for conflicts with `strict`."""
    report = MergeReport(inputs=[source.name for source in sources])
    seen: dict[str, bytes] = {}
    first: Record | None = None
    for record in read_records(sources, read, log):
        if first is None:
            first = record
        elif record.format != first.format:
            raise DataError(
                f"{first.source} holds {first.format} rows, {record.where} is a {record.format} row",
                hint="merge files of one format; --format reads all rows as one",
            )
        lines = record.to_lines()
        content = blake2b(b"\n".join(lines), digest_size=12).digest()
        if record.id != f"{record.source}:{record.line}":  # a made-up id says nothing
            old = seen.setdefault(record.id, content)
            if old is not content:
                if old == content:
                    report.doubles += 1
                    continue
                _conflict(report, f"{record.where}: id {record.id!r} was there before with other content", read.strict)
        report.kept += 1
        report.by_input[record.source] += 1
        for line in lines:
            write(line, record)
    return report


def _conflict(report: MergeReport, text: str, strict: bool) -> None:
    if strict:
        raise DataError(text, hint="without --strict it is reported and merging continues")
    report.conflict(text)


class RunMerge:
    """Joins run folders: check the plans first, then write the groups into an opened run folder."""

    def __init__(self, runs: Sequence[Source]) -> None:
        self._runs = runs
        plans = [(source, read_plan(_folder(source) / "plan.json")) for source in runs]
        self._first = plans[0][1]
        for source, plan in plans[1:]:
            check_same_plan(self._first, plan, _folder(source))
        limits = [plan.limit for _, plan in plans]
        known = [limit for limit in limits if limit is not None]
        self.plan: Plan = self._first.replace(
            limit=max(known) if len(known) == len(limits) else None,
            execution=self._first.execution.replace(shard=None),
        )
        self.report = MergeReport(inputs=[source.name for source in runs])
        self._totals = Totals()
        self._served: tuple[str, str] | None = None  # environment and model, as the groups name them
        self._seen: dict[int, bytes] = {}

    def write(self, run: RunDir, *, strict: bool = False) -> MergeReport:
        """Fill the run folder: plan, groups, failures, summary."""
        run.write_plan(self.plan)
        name = "groups.jsonl.zst" if self.plan.writer.name == "jsonl.zst" else "groups.jsonl"
        compress = _compressor() if name.endswith(".zst") else None
        with (run.folder / name).open("wb") as file:
            for source in self._runs:
                for index, lines in self._tasks(source):
                    if not self._is_new(index, lines, source, strict):
                        continue
                    self.report.kept += len(lines)
                    self.report.by_input[source.name] += len(lines)
                    data = b"".join(line + b"\n" for line in lines)
                    file.write(compress(data) if compress is not None else data)
        if self.plan.limit is not None:
            self.report.missing = self.plan.limit - len(self._seen)
        self._join_failures(run)
        self._summarise(run, run.folder / name)
        run.log("merged", inputs=self.report.inputs, groups=self.report.kept, doubles=self.report.doubles)
        return self.report

    def _is_new(self, index: int, lines: list[bytes], source: Source, strict: bool) -> bool:
        content = blake2b(b"\n".join(lines), digest_size=12).digest()
        old = self._seen.get(index)
        if old is None:
            self._seen[index] = content
            groups = [read_group(line, source.name) for line in lines]
            self._totals.write(index, groups)
            self._served = self._served or (groups[-1].env, groups[-1].model)
            return True
        self.report.doubles += len(lines)
        if old != content:
            group_id = read_header(lines[-1])[0]
            text = f"{source.name}: group {group_id} was in an earlier shard with other content; the first is kept"
            _conflict(self.report, text, strict)
        return False

    def _tasks(self, source: Source) -> Iterator[tuple[int, list[bytes]]]:
        """(task, its lines) of every task whose last group is there."""
        prefix = self.plan.digest[:10]
        lines: list[bytes] = []
        with source.open() as file:
            for number, raw in enumerate(file, start=1):
                line = raw.rstrip(b"\r\n")
                try:
                    group_id, last = read_header(line)
                    found, index = parse_group_id(group_id)
                except ValueError as error:
                    if not raw.endswith(b"\n"):
                        break  # torn by a kill
                    raise DataError(
                        f"{source.name}:{number}: broken line: {error}", hint="resume that shard"
                    ) from error
                if found != prefix:
                    raise DataError(f"{source.name}:{number}: group {group_id!r} belongs to another plan")
                if not raw.endswith(b"\n"):
                    break
                lines.append(line)
                if last:
                    yield index, lines
                    lines = []
            else:
                if lines:
                    self.report.torn += 1
                self._check_end(source, file)
                return
        self.report.torn += 1

    def _check_end(self, source: Source, file: Any) -> None:
        stream: Any = getattr(file, "raw", None)
        if getattr(stream, "problem", None):
            if not stream.torn:
                raise DataError(f"{source.name}: compressed data ends early: {stream.problem}")
            self.report.torn += 1

    def _join_failures(self, run: RunDir) -> None:
        with (run.folder / "failures.jsonl").open("wb") as file:
            for source in self._runs:
                path = _folder(source) / "failures.jsonl"
                if path.exists():
                    file.writelines(line + b"\n" for line in path.read_bytes().splitlines() if line.strip())
        if not (run.folder / "failures.jsonl").stat().st_size:
            (run.folder / "failures.jsonl").unlink()

    def _summarise(self, run: RunDir, groups: Path) -> None:
        """Write the summary, and what a session that resumes the merged run needs."""
        facts = RunFacts(self.plan.environment.name, self.plan.group_size, self.plan.digest[:10])
        for task in lost_tasks(run.folder, facts, self._seen.__contains__):
            self._totals.lose(task.index, task.kinds)
        folders = [_folder(source) for source in self._runs]
        parts = [found for folder in folders if (found := _read_summary(folder)) is not None]
        finished = len(parts) == len(self._runs) and all(part.get("state") == "finished" for part in parts)
        sessions = Sessions()
        for folder in folders:
            sessions = sessions.with_session(stored_sessions(folder))
        RunTotals(run.folder, groups, facts.prefix or "", self._totals, sessions).save(Sessions())
        env, model = self._served or (self.plan.environment.name, self.plan.model)
        summary = RunSummary(
            state="finished" if finished and not self.report.missing else "interrupted",
            plan_digest=self.plan.digest,
            env=env,
            model=model or self.plan.model,
            groups_done=len(self._seen),
            groups_total=self.plan.limit,
            **{**sessions.fields(()), "reward_details": _details(parts, sessions)},
            **_money(parts),
            **self._totals.fields(),
        )
        run.write_summary(summary)


def _money(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the shards cost together; nothing where they were paid in several currencies."""
    paid = [part for part in parts if isinstance(part.get("cost"), int | float)]
    currencies = {str(part.get("currency")) for part in paid}
    if len(currencies) != 1:
        return {}
    sums = {name: math.fsum(float(part.get(name) or 0.0) for part in paid) for name in ("cost", "cost_unsure")}
    return {**sums, "currency": currencies.pop()}


def _details(parts: Sequence[dict[str, Any]], sessions: Sessions) -> dict[str, JsonDict]:
    """What rewards say of themselves, as the first shard has it, with the counts of all."""
    told: dict[str, JsonDict] = {}
    for part in parts:
        for name, details in (part.get("reward_details") or {}).items():
            told.setdefault(name, details)
    return {name: {**details, **sessions.reward_counts.get(name, {})} for name, details in told.items()}


def _folder(source: Source) -> Path:
    assert source.run is not None
    return source.run


def _read_summary(folder: Path) -> dict[str, Any] | None:
    try:
        return read_object(folder / "summary.json")
    except (OSError, ValueError):
        return None


def _compressor() -> Callable[[bytes], bytes]:
    try:
        import zstandard
    except ModuleNotFoundError as error:
        raise DataError("writing .zst needs zstandard", hint="pip install 'atropos-cli[zst]'") from error
    compressor = zstandard.ZstdCompressor(level=3)
    return lambda data: bytes(compressor.compress(data))
