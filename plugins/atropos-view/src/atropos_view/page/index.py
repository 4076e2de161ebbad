"""The list of runs as a page: one line a run, live while they run, each with a link into its viewer."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from atropos_cli.sdk.runs import (
    Listing,
    RunEntry,
    RunReader,
    holds_rollouts,
    list_runs,
    run_progress,
    run_result,
    run_subject,
    telling_options,
)
from atropos_view.page.library import Library
from atropos_view.page.page import TYPES, asset, index_page

ASSETS = ("dom.js", "runs.js", "style.css", "runs.css")
LINES = 2000
"""Runs that the page lists; of more the newest."""

_OPEN = 16
_FRESH_S = 0.5
_SHARE = 0.1
"""Share of the time that may go into looking at the folders, however many pages ask: huge trees are looked at less."""

_TEXT = 300

Content = tuple[int, str, bytes]
"""Status, content type, body."""


class RunIndex:
    """Serves the list, and opens the runs in it when they are asked for. `open_run` makes a library of a folder."""

    def __init__(self, folders: Sequence[Path], open_run: Callable[[Path], Library]) -> None:
        self.name = " and ".join(str(folder) for folder in folders)
        self.diff = None
        self._folders = list(folders)
        self._open_run = open_run
        self._reader = RunReader()
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._listing = Listing([])
        self._by_key: dict[str, RunEntry] = {}
        self._stale_at = 0.0
        self._libraries: OrderedDict[str, tuple[object, Library]] = OrderedDict()

    def entries(self) -> Listing:
        """The runs as they stand now; asked by several pages at once, they are read once."""
        with self._lock:
            begin = time.monotonic()
            if begin >= self._stale_at:
                self._listing = list_runs(self._folders, self._reader)
                self._by_key = {key_of(entry): entry for entry in self._listing.entries}
                end = time.monotonic()
                self._stale_at = end + max(_FRESH_S, (end - begin) / _SHARE)
            return self._listing

    def content(self, name: str) -> Content | None:
        """A page, one of its files or its data; None for what is not there."""
        if name == "":
            return 200, "text/html; charset=utf-8", index_page(self.name).encode("utf-8", "replace")
        if name in ASSETS:
            return 200, TYPES[name[name.rindex(".") :]], asset(name).encode()
        if name == "api/runs":
            return 200, "application/json", json.dumps(self._as_json(), allow_nan=False).encode("ascii")
        return None

    def curves(self, key: str) -> bytes | None:
        """The learning curves of a training run as far as it is; a page that stands by itself."""
        from atropos_cli.sdk.runs import read_metrics, training_charts, training_page

        entry = self._entry(key)
        if entry is None or entry.kind != "train" or not (rows := read_metrics(Path(entry.run))):
            return None
        charts, remarks = training_charts(rows)
        return training_page(charts, Path(entry.run).name, rows, remarks).encode("utf-8", "replace")

    def library(self, key: str) -> Library | None:
        """The run behind a link. Raises DataError when it holds nothing to show."""
        entry = self._entry(key)
        if entry is None:
            return None
        folder = Path(entry.run)
        with self._opening:
            mark = _mark(folder)
            known = self._libraries.get(key)
            if known is None or known[0] != mark:
                self._libraries[key] = known = (mark, self._open_run(folder))
                while len(self._libraries) > _OPEN:
                    self._libraries.popitem(last=False)  # closed when the last answer from it is out
            self._libraries.move_to_end(key)
            return known[1]

    def close(self) -> None:
        with self._opening:
            for _, library in self._libraries.values():
                library.close()
            self._libraries.clear()

    def _entry(self, key: str) -> RunEntry | None:
        if key not in self._by_key:
            self.entries()
        return self._by_key.get(key)

    def _as_json(self) -> dict[str, Any]:
        listing = self.entries()
        shown = listing.entries[:LINES]
        options = telling_options(shown)
        notes = list(listing.notes)
        if len(listing.entries) > LINES:
            notes.append(f"the newest {LINES} of {len(listing.entries)} runs")
        return {
            "name": self.name,
            "notes": notes,
            "runs": [_line(entry, options.get(entry.run, {})) for entry in shown],
        }


def _line(entry: RunEntry, options: dict[str, str]) -> dict[str, Any]:
    fields = ("kind", "state", "started", "updated", "done", "total", "unit", "reward", "accuracy", "next")
    data: dict[str, Any] = {name: getattr(entry, name) for name in fields}
    return data | {
        "key": key_of(entry),
        "run": entry.run,
        "what": run_subject(entry, options)[:_TEXT],
        "model": (entry.model or entry.backend or "")[:_TEXT],
        "progress": run_progress(entry),
        "result": run_result(entry),
        "equal": entry.zero_std_groups,
        "error": entry.error,
        "groups": holds_rollouts(Path(entry.run)),
        "curves": entry.kind == "train" and bool(entry.done),
    }


def key_of(entry: RunEntry) -> str:
    """What a run is called in addresses: nothing of its path, which may hold anything."""
    return hashlib.sha256(entry.run.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _mark(folder: Path) -> object:
    """Another one when --overwrite put another run in the folder's place."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
