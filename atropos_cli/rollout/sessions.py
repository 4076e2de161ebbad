"""What all sessions of a run have counted: kept in totals.json, checked and completed when the run is resumed.

    {"prefix": .., "tasks": .., "bytes": .., "tail": .., "groups": {..}, "sessions": {..}}

`groups` covers the first `bytes` of the groups file, which hold `tasks` tasks and whose end hashes to `tail`. Groups
behind them (after a crash) are read and added. A file that does not fit is not believed: the groups are counted again.
Tasks that failed as a whole are in failures.jsonl.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.errors import DataError
from atropos_cli.io.append import atomic_write
from atropos_cli.io.lost import RunFacts, lost_tasks
from atropos_cli.io.sources import GROUPS, Source
from atropos_cli.ports.reward import Reward
from atropos_cli.rollout.costs import Counts, merged
from atropos_cli.rollout.dispatch import Dispatcher
from atropos_cli.rollout.totals import Totals

FILE = "totals.json"
_TAIL = 1 << 16


@dataclass(slots=True)
class Sessions:
    """What sessions did that cannot be counted from the groups.

    reward_counts: of each reward, see Reward.counts. usage: by model, see `rollout.costs.Counts`.
    """

    requests: int = 0
    retries: int = 0
    paused_s: float = 0.0
    max_in_flight: int = 0
    seconds: float = 0.0
    reward_counts: dict[str, dict[str, int]] = field(default_factory=dict)
    usage: Counts = field(default_factory=dict)

    @classmethod
    def of(cls, dispatcher: Dispatcher | None, rewards: Sequence[Reward], seconds: float) -> Sessions:
        """A session so far."""
        counts: dict[str, dict[str, int]] = {}
        for reward in rewards:  # members of a mixture may have the same one
            mine = counts.setdefault(reward.name, {})
            for key, count in reward.counts().items():
                mine[key] = mine.get(key, 0) + count
        if dispatcher is None:
            return cls(seconds=seconds, reward_counts=counts)
        did = dispatcher
        usage = merged({}, did.ledger.now) if did.ledger is not None else {}
        return cls(did.requests, did.retries, did.paused_s, did.max_in_flight, seconds, counts, usage)

    def fields(self, rewards: Sequence[Reward]) -> dict[str, Any]:
        """The part of a RunSummary that is counted here."""
        data = asdict(self)
        counts = data.pop("reward_counts")
        details = {reward.name: {**reward.describe(), **counts.get(reward.name, {})} for reward in rewards}
        return {**data, "reward_details": {name: told for name, told in details.items() if told}}

    def with_session(self, now: Sessions) -> Sessions:
        """Together with the current session."""
        counts = {name: dict(one) for name, one in self.reward_counts.items()}
        for name, one in now.reward_counts.items():
            mine = counts.setdefault(name, {})
            for key, count in one.items():
                mine[key] = mine.get(key, 0) + count
        return Sessions(
            requests=self.requests + now.requests,
            retries=self.retries + now.retries,
            paused_s=round(self.paused_s + now.paused_s, 3),
            max_in_flight=max(self.max_in_flight, now.max_in_flight),
            seconds=round(self.seconds + now.seconds, 3),
            reward_counts=counts,
            usage=merged(self.usage, now.usage),
        )


@dataclass(slots=True)
class RunTotals:
    """The totals of a run folder. groups: its groups file, None when a plugin's writer keeps another kind of file.

    unknown: tasks of earlier sessions that could not be counted.
    """

    folder: Path | None = None
    groups: Path | None = None
    prefix: str = ""
    totals: Totals = field(default_factory=Totals)
    earlier: Sessions = field(default_factory=Sessions)
    unknown: int = 0

    def save(self, now: Sessions) -> None:
        """Write totals.json. To be called while nothing is being written. Raises DataError."""
        if self.folder is None or self.unknown:
            return
        size = self.groups.stat().st_size if self.groups is not None and self.groups.exists() else 0
        data = {
            "prefix": self.prefix,
            "tasks": self.totals.tasks,
            "bytes": size,
            "tail": _tail(self.groups, size),
            "groups": self.totals.state(),
            "sessions": asdict(self.earlier.with_session(now)),
        }
        atomic_write(self.folder / FILE, json.dumps(data).encode() + b"\n")


def recover(
    folder: Path,
    writer_file: str | None,
    facts: RunFacts,
    written: int,
    is_written: Callable[[int], bool],
    stopped: Callable[[], bool] = lambda: False,
) -> RunTotals:
    """The totals of a repaired run folder. written: how many tasks its writer holds; is_written: does it hold this one?

    Raises DataError for a groups file with a broken line, and InterruptedError when `stopped` became true.
    """
    groups = folder / writer_file if writer_file in GROUPS else None
    found = RunTotals(folder, groups, facts.prefix or "")
    start = _load(found, written)
    if groups is None:
        found.unknown = written - found.totals.tasks
    elif written:
        _read(found.totals, groups, start, stopped)
        if found.totals.tasks != written and start:
            found.totals = Totals()
            _read(found.totals, groups, 0, stopped)
    for task in lost_tasks(folder, facts, is_written):
        found.totals.lose(task.index, task.kinds)
    return found


def stored_sessions(folder: Path) -> Sessions:
    """What a run's sessions did, by its totals.json; by its summary where there is none, and nothing where none is."""
    for name, part in ((FILE, "sessions"), ("summary.json", None)):
        try:
            data = json.loads((folder / name).read_bytes())
            known = data[part] if part is not None else data
            found = Sessions(**{key: known[key] for key in Sessions.__slots__ if key in known})
            return Sessions().with_session(found)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
    return Sessions()


def _load(found: RunTotals, written: int) -> int:
    """Take over what totals.json holds, if it fits; how many bytes of the groups file that covers."""
    assert found.folder is not None
    try:
        data = json.loads((found.folder / FILE).read_bytes())
        size, tasks = int(data["bytes"]), int(data["tasks"])
        covered = found.groups.stat().st_size if found.groups is not None else 0
        fits = data["prefix"] == found.prefix and 0 <= size <= covered
        fits = fits and (0 < tasks <= written if found.groups is not None else tasks == written)
        if not fits or data["tail"] != _tail(found.groups, size):
            return 0
        totals, earlier = Totals.from_state(data["groups"]), stored_sessions(found.folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return 0
    found.totals, found.earlier = totals, earlier
    return size


def _tail(path: Path | None, size: int) -> str:
    """The hash of the last bytes before `size`."""
    if path is None or not size:
        return ""
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL))
        return blake2b(file.read(min(size, _TAIL)), digest_size=16).hexdigest()


def _read(totals: Totals, path: Path, start: int, stopped: Callable[[], bool]) -> None:
    """Add the groups behind byte `start`."""
    with Source(str(path), path, "lines").open(start) as file:
        for line in file:
            if stopped():
                raise InterruptedError
            totals.add(read_group(line, str(path)))


def read_group(line: bytes, name: Any) -> ScoredGroup:
    """A line of a groups file. Raises DataError naming the file."""
    try:
        return ScoredGroup.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(
            f"{name}: a group cannot be read: {line[:80].decode('utf-8', 'replace')}...: {where}: {first['msg']}",
            hint="remove or mend that line, then resume",
        ) from error
