"""Run folders below a folder. Links are followed once, so loops end; how deep and how far it looks is bounded."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from atropos_cli.io.sources import GROUPS
from atropos_cli.training.summary import FILE as TRAIN_FILE

PLAN, EVALUATION, JOB = "plan.json", "eval.json", "job.json"

DEEPEST = 6
MOST_FOLDERS = 20_000
"""Folders that are looked into. A run counts as one: what lies inside it belongs to it."""

_PASSED_BY = frozenset({"node_modules", "__pycache__", "site-packages"})


@dataclass(slots=True)
class Found:
    """The run folders in no order. jobs: folders of jobs that hold no run. stopped: there may be more."""

    runs: list[Path] = field(default_factory=list)
    jobs: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    stopped: bool = False


def is_run(names: Iterable[str]) -> bool:
    """Is a folder with these names in it a run?"""
    there = set(names)
    return PLAN in there or TRAIN_FILE in there or any(name in there for name in GROUPS)


def holds_rollouts(folder: Path) -> bool:
    """Is there something to view? Training on stored rows has no rollouts, and a run that failed early none either."""
    return any((folder / name).is_file() for name in GROUPS)


def find_runs(folders: Iterable[Path]) -> Found:
    """The runs below some folders, or they themselves; each once."""
    found = Found()
    seen: set[tuple[int, int]] = set()
    waiting = [(folder, 0) for folder in folders]
    while waiting:
        folder, depth = waiting.pop()
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            if len(seen) >= MOST_FOLDERS:
                found.stopped = True
                break
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as listing:
                inside = [(entry.name, _is_folder(entry)) for entry in listing]
        except FileNotFoundError:
            continue  # removed while we looked
        except OSError as error:
            found.problems.append(f"{folder}: {error.strerror or error}")
            continue
        files = {name for name, is_folder in inside if not is_folder}
        if is_run(files) or (("shards", True) in inside and _in_shards(folder)):
            found.runs.append(folder)
            continue
        if JOB in files:
            found.jobs.append(folder)
        if depth == DEEPEST:
            continue
        names = (name for name, is_folder in inside if is_folder)
        waiting += [(folder / name, depth + 1) for name in names if not name.startswith(".") and name not in _PASSED_BY]
    return found


def shards(folder: Path) -> list[Path]:
    """The shards of a run that is carried out in shards, by number."""
    found = [path.parent for path in folder.glob(f"shards/*/{PLAN}") if path.parent.name.isdecimal()]
    return sorted(found, key=lambda path: int(path.name))


def _in_shards(folder: Path) -> bool:
    return bool(shards(folder))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
