"""The runs below some folders as a list: newest first, chosen by filters, each told by what sets it apart."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

from atropos_cli.errors import UsageError
from atropos_cli.runs.entry import RunEntry, RunReader
from atropos_cli.runs.find import MOST_FOLDERS, find_runs

_AGE = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TOLD = 4
_PLAIN = 2
_VALUE = 24
_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class Listing:
    """entries: newest first. notes: what is not in the list, and why."""

    entries: list[RunEntry]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs are listed. env and model: a part of the name, or a pattern with * and ?; any of several."""

    states: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    envs: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    since: datetime | None = None

    def matches(self, entry: RunEntry) -> bool:
        return (
            (not self.states or entry.state in self.states)
            and (not self.kinds or entry.kind in self.kinds)
            and _any(self.envs, (entry.env, *entry.data))
            and _any(self.models, (entry.model, entry.backend))
            and (self.since is None or moment(entry) >= self.since)
        )


def list_runs(folders: Sequence[Path], reader: RunReader | None = None) -> Listing:
    """All runs below the folders. reader: keeps what it read, for a list that is asked for again."""
    reader = reader or RunReader()
    found = find_runs(folders)
    entries = sorted((reader.read(folder) for folder in found.runs), key=lambda e: (moment(e), e.run), reverse=True)
    notes = [f"not read: {problem}" for problem in found.problems[:_PROBLEMS]]
    if len(found.problems) > _PROBLEMS:
        notes.append(f"not read: {len(found.problems) - _PROBLEMS} folders more")
    if found.jobs:
        notes.append(f"{len(found.jobs)} jobs that hold no run (yet): see atropos slurm list")
    if found.stopped:
        notes.append(f"looked into {MOST_FOLDERS:,} folders and stopped: name a folder further down")
    return Listing(entries, notes)


def moment(entry: RunEntry) -> datetime:
    """When it began."""
    if entry.started is None:
        return datetime.min.replace(tzinfo=UTC)
    found = datetime.fromisoformat(entry.started)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def since(text: str, now: datetime | None = None) -> datetime:
    """The time that "2d", "2026-11-28" or "2026-11-28T18:00" means; without a zone local time. Raises UsageError."""
    now = now or datetime.now(UTC)
    age = _AGE.fullmatch(text.strip().lower())
    try:
        if age:
            return now - timedelta(**{_UNITS[age[2]]: int(age[1])})
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since {text!r} is no time", hint="an age such as 30m, 12h, 2d or 1w, or a date such as 2026-11-28"
        ) from None


def one_of(option: str, texts: Iterable[str], known: Sequence[str]) -> frozenset[str]:
    """The values that were given, also with commas between them. Raises UsageError for an unknown one."""
    found = frozenset(part.strip() for text in texts for part in text.split(","))
    unknown = sorted(found - set(known))
    if unknown:
        raise UsageError(f"{option} {unknown[0]!r} is none there is", hint=f"one of {', '.join(known)}")
    return found


def telling_options(entries: Sequence[RunEntry]) -> dict[str, dict[str, str]]:
    """By run: the options in which runs of one environment differ; where none differ, the first of them."""
    by_env: dict[str, list[RunEntry]] = defaultdict(list)
    for entry in entries:
        if entry.env is not None:
            by_env[entry.env].append(entry)
    found = {}
    for same in by_env.values():
        texts = [{name: _value(value) for name, value in entry.options.items()} for entry in same]
        names = dict.fromkeys(name for options in texts for name in options)
        differing = [name for name in names if len({options.get(name) for options in texts}) > 1][:_TOLD]
        for entry, options in zip(same, texts, strict=True):
            shown = differing or [n for n, v in entry.options.items() if isinstance(v, str) and v][:_PLAIN]
            found[entry.run] = {name: options[name] for name in shown if options.get(name)}
    return found


def what(entry: RunEntry, options: Mapping[str, str]) -> str:
    """What was run, in few words: `arithmetic kind=add`, `grpo on arithmetic`, `sft on rows.jsonl`."""
    told = " ".join(f"{name}={value}" for name, value in options.items())
    subject = entry.env or ", ".join(Path(item).name for item in entry.data) or "?"
    method = f"{entry.method or 'training'} on " if entry.kind == "train" else ""
    return f"{method}{subject} {told}".rstrip()


def result(entry: RunEntry) -> str:
    """Its one number: accuracy where there is one, else the reward; of training from the first to the last.

    A training run that was evaluated only once so far tells more by its reward.
    """
    pairs = [("accuracy", entry.accuracy, entry.accuracy_first), ("reward", entry.reward, entry.reward_first)]
    if entry.kind == "train" and entry.accuracy_first is None:
        pairs.reverse()
    for name, last, first in pairs:
        if last is not None:
            return f"{name} " + (f"{first:.3f} -> " if first is not None else "") + f"{last:.3f}"
    return "-"


def progress(entry: RunEntry) -> str:
    """`4/8 groups`."""
    if entry.done is None:
        return "-"
    if entry.total is None:
        return f"{entry.done} {entry.unit if entry.done != 1 else entry.unit.removesuffix('s')}"
    return f"{entry.done}/{entry.total} {entry.unit}"


def _any(patterns: Sequence[str], texts: Sequence[str | None]) -> bool:
    return not patterns or any(
        _fits(pattern.casefold(), text.casefold()) for text in texts if text for pattern in patterns
    )


def _fits(pattern: str, text: str) -> bool:
    return fnmatchcase(text, pattern) if any(mark in pattern for mark in "*?[") else pattern in text


def _value(value: object) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE else text[: _VALUE - 1] + "…"
