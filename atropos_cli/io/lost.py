"""Tasks of a run none of whose rollouts succeeded: no group of theirs was written, only lines of failures.jsonl.

A task is lost by what its last session left behind, and only as long as the groups file holds no group of it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atropos_cli.domain.group import parse_group_id
from atropos_cli.io.groupfile import read_header
from atropos_cli.io.records import Record, StoredRollout
from atropos_cli.io.sources import Source
from atropos_cli.stats.metrics import full_marks

_MOST_ROLLOUTS = 1_000_000
_GROUP = re.compile(rb'\{"group_id":\s*"([^"\\]+)"')


@dataclass(frozen=True, slots=True)
class LostTask:
    """failures: one {stage, type, message} for each of its rollouts."""

    index: int
    group_id: str
    task_id: str | None
    failures: tuple[dict[str, str], ...]

    @property
    def kinds(self) -> list[str]:
        """ "stage:type" of each rollout."""
        return [f"{failure['stage']}:{failure['type']}" for failure in self.failures]

    def record(self, source: str, env: str | None) -> Record:
        """The task as a group of failed rollouts without messages."""
        rollouts = [
            StoredRollout(messages=[], score=None, raw={}, index=number, failure=dict(failure))
            for number, failure in enumerate(self.failures)
        ]
        return Record(
            id=self.group_id, raw={}, format="native", rollouts=rollouts, task_id=self.task_id, env=env, source=source
        )


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What plan.json and summary.json say of a run.

    prefix: how its group ids begin. full_marks: the reward of a perfect rollout. None where the plan does not say.
    options: those of the environment.
    """

    env: str
    group_size: int
    prefix: str | None = None
    full_marks: float | None = None
    options: dict[str, Any] = field(default_factory=dict)


def run_facts(run: Path) -> RunFacts | None:
    """The facts of a run folder; None when it holds no plan of rollouts that can be read."""
    plan = _object(run / "plan.json")
    digest = plan.get("digest")
    if isinstance(plan.get("rollouts"), dict):
        plan, digest = plan["rollouts"], None
    try:
        env, size = str(plan["environment"]["name"]), int(plan["group_size"])
        owners = plan.get("mixture") or [plan]
        known = {
            full_marks(float(reward["weight"]) for reward in owner["rewards"]) for owner in owners if "rewards" in owner
        }
        marks = known.pop() if len(known) == 1 else None
    except (KeyError, TypeError, ValueError):
        return None
    stored = _object(run / "summary.json").get("env")  # an environment of a file is planned by its path
    prefix = digest[:10] if isinstance(digest, str) else None
    if not 1 <= size <= _MOST_ROLLOUTS:
        return None
    options = plan["environment"].get("config")
    name = stored if isinstance(stored, str) else env
    return RunFacts(name, size, prefix, marks, options if isinstance(options, dict) else {})


def lost_tasks(run: Path, facts: RunFacts, written: Callable[[int], bool]) -> Iterator[LostTask]:
    """The lost tasks of a run, by index. written: does the groups file hold the task's groups?

    A task of which only some rollouts left a line was interrupted, not lost: its lines were followed by no group.
    """
    found: dict[int, _Lines] = {}
    for path in _files(run):
        _collect(path, facts, written, found)
    for index in sorted(found):
        lines = found[index].complete(facts.group_size)
        if lines is not None:
            yield lines.task(index, facts.group_size)


@dataclass(slots=True)
class _Lines:
    """Where the lines of a task's last session stand, by rollout (None: the group as a whole).

    before: those of the session before it.
    """

    path: Path
    session: Any
    before: _Lines | None = None
    at: dict[str | None, int] = field(default_factory=dict)
    whole: bool = False

    def complete(self, group_size: int) -> _Lines | None:
        """The last session in which all rollouts failed: one that was interrupted changes nothing."""
        if self.whole or len(self.at) >= group_size:
            return self
        return self.before

    def task(self, index: int, group_size: int) -> LostTask:
        rows = []
        with self.path.open("rb") as file:
            for offset in self.at.values():
                file.seek(offset)
                rows.append(json.loads(file.readline()))
        failures = [{key: str(row.get(key, "?")) for key in ("stage", "type", "message")} for row in rows]
        if None in self.at:
            failures *= group_size
        task_id = rows[-1].get("task_id")
        return LostTask(index, rows[-1]["group_id"], task_id if isinstance(task_id, str) else None, tuple(failures))


def _files(run: Path) -> list[Path]:
    return [path for path in (run / "failures.jsonl", *sorted(run.glob("ranks/*/failures.jsonl"))) if path.exists()]


def _collect(path: Path, facts: RunFacts, written: Callable[[int], bool], found: dict[int, _Lines]) -> None:
    """Add the lines of one failures file to what was found; a torn or foreign line is passed over."""
    for at, index, line in _indexed(path, facts):
        if written(index):
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the torn tail of a killed run
        rollout, session = row.get("rollout"), row.get("attempt")
        if not isinstance(rollout, str | None):
            continue
        lines = found.get(index)
        # A later session tried the task again; a task that failed as a whole has one line in all.
        if lines is None or (lines.session, lines.path) != (session, path) or (rollout is None) != (None in lines.at):
            lines = found[index] = _Lines(path, session, lines.complete(facts.group_size) if lines else None)
        lines.at[rollout] = at
        lines.whole = lines.whole or rollout is None or row.get("lost") is True


def _indexed(path: Path, facts: RunFacts) -> Iterator[tuple[int, int, bytes]]:
    """(offset, task index, line) of the lines that name a group of the run."""
    offset = 0
    with path.open("rb") as file:
        for line in file:
            match = _GROUP.match(line)
            index = _index_of(match[1].decode("utf-8", "replace"), facts) if match is not None else None
            if index is not None:
                yield offset, index, line
            offset += len(line)


def _index_of(group_id: str, facts: RunFacts) -> int | None:
    try:
        prefix, index = parse_group_id(group_id)
    except ValueError:
        return None
    return index if index >= 0 and facts.prefix in (None, prefix) else None


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class LostGroups:
    """The lost tasks of all run folders among some sources: show it every record, then ask what is missing."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._runs: dict[str, Path] = {}
        self._open: dict[Path, set[int]] = {}
        self._env: dict[Path, str] = {}
        self._facts: dict[Path, RunFacts] = {}
        for source in sources:
            facts = run_facts(source.run) if source.run is not None else None
            if source.run is None or facts is None:
                continue
            self._facts[source.run] = facts
            self._open[source.run] = {index for path in _files(source.run) for _, index, _ in _indexed(path, facts)}
            for name in (source.name, *map(str, source.run.glob("ranks/*/groups.jsonl*"))):
                self._runs[name] = source.run

    def facts(self, source: str) -> RunFacts | None:
        """What is known of the run that a source belongs to."""
        run = self._runs.get(source)
        return None if run is None else self._facts[run]

    def seen(self, record: Record) -> None:
        """A group that was written."""
        run = self._runs.get(record.source)
        if run is None:
            return
        if record.env is not None:
            self._env.setdefault(run, record.env)
        if self._open[run] and (index := _index_of(record.id, self._facts[run])) is not None:
            self._open[run].discard(index)

    def state(self) -> dict[str, Any]:
        """The tasks seen, for `absorb`."""
        left = {str(run): sorted(indices) for run, indices in self._open.items()}
        return {"left": left, "env": {str(run): env for run, env in self._env.items()}}

    def absorb(self, state: dict[str, Any]) -> None:
        """Add the tasks seen in another part of the sources."""
        for run, left in state["left"].items():
            if Path(run) in self._open:
                self._open[Path(run)].intersection_update(left)
        for run, env in state["env"].items():
            self._env.setdefault(Path(run), env)

    @property
    def candidates(self) -> bool:
        """Is there any task to look for? Without one no record need be shown."""
        return any(self._open.values())

    def seen_row(self, source: str, row: bytes) -> None:
        """The same as `seen`, of a row of a groups file that was not parsed."""
        run = self._runs.get(source)
        if run is None:
            return
        with contextlib.suppress(ValueError, RecursionError):
            index = _index_of(read_header(row)[0], self._facts[run])
            if index is not None:
                self._open[run].discard(index)

    def remaining(self) -> Iterator[Record]:
        """Each lost task as a record of failed rollouts. Its `source` is the run folder."""
        for run, facts in self._facts.items():
            still_open = self._open[run]
            for task in lost_tasks(run, facts, lambda index, still_open=still_open: index not in still_open):  # type: ignore[misc]
                yield task.record(str(run), self._env.get(run, facts.env))
