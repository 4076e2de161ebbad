"""Replies kept on disk, so that a request that was answered once is not paid for again. For gen and eval only.

One SQLite file, replies.sqlite, shared by any number of processes. A row is one sample: its key is the hash of the
whole request (conversation, sampling, seed, tools, prefill, what decides the model's replies) and the sample's number,
so that the eight rollouts of a group are eight rows. Headers and API keys do not belong to a request here.

What is read is checked like an answer from outside; unreadable lines are ignored, with one warning.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.plan import Plan
from atropos_cli.errors import DataError
from atropos_cli.paths import home, only_here, user_cache
from atropos_cli.ports.backend import GenerateRequest, Generation, InferenceBackend

log = logging.getLogger("atropos.cache")
FILE = "replies.sqlite"
_LOOK_AT_SIZE_EVERY = 1000
_KEEP = 0.8
_TABLE = """
CREATE TABLE IF NOT EXISTS replies_1 (key BLOB NOT NULL, sample INTEGER NOT NULL, reply BLOB NOT NULL,
PRIMARY KEY (key, sample))
"""
_IGNORES_N = -1  # the row's number where a server gave fewer samples than it was asked for
# Each request may wait this long for another process, and the opening of the file that long.
_BUSY_SECONDS, _OPENING_SECONDS = 2.0, 20.0
_NO_PART = {"base_url", "api_key_env", "headers", "timeout"}
"""Options of a backend that say how it is reached, not what it answers."""


def cache_folder(plan: Plan) -> Path | None:
    """Where the plan's replies are kept; None where they are not."""
    chosen = plan.execution.cache_dir
    if chosen is not None:
        return Path(home(chosen))
    if not plan.execution.cache:
        return None
    root = os.environ.get("ATROPOS_CACHE_DIR")
    return (Path(root).expanduser() if root else user_cache()) / "replies"


class ReplyCache:
    """The cache of one run's backend. about: see `identity`. Raises DataError where the folder cannot be used.

    A file that breaks while it is used costs a warning and money, never a rollout.
    """

    def __init__(self, folder: Path, about: JsonDict, megabytes: float) -> None:
        self.path = folder / FILE
        self.identity = about
        self._most = int(megabytes * 1e6)
        self._prefix = to_json(self.identity)
        self._kept = 0
        self._told: set[str] = set()
        self._base: sqlite3.Connection | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            self._refuse_foreign()
        except OSError as error:
            why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror or error
            raise DataError(
                f"the cache {self.path} cannot be used: {why}", hint="--cache-dir another folder"
            ) from error
        with self._forgiven():
            self._connect()

    @property
    def usable(self) -> bool:
        """Is the file open? It may be damaged."""
        return self._base is not None

    def find(self, request: GenerateRequest) -> Generation | None:
        """The samples that are known, in order; None where there is nothing to go by.

        No more than were asked for, and maybe fewer: the others are then asked for one by one.
        """
        found: list[Generation] = []
        with self._forgiven():
            if self._base is None:
                return None
            key = self._key(request)
            rows = self._base.execute(
                "SELECT sample, reply FROM replies_1 WHERE key = ? ORDER BY sample",
                (key,),
            ).fetchall()
            ignores_n = bool(rows) and rows[0][0] == _IGNORES_N
            for place, (sample, data) in enumerate(rows[ignores_n:][: request.n]):
                reply = self._read(key, sample, data) if sample == place else None
                if reply is None:
                    break
                found.append(reply)
            if not found and request.n > 1 and (ignores_n or self._ignores_n()):
                return Generation(completions=())
        if not found:
            return None
        first = found[0]
        parts = tuple(reply.completions[0] for reply in found)
        return Generation(completions=parts, prompt_ids=first.prompt_ids, prompt_tokens=first.prompt_tokens)

    def keep(self, request: GenerateRequest, generation: Generation) -> None:
        """Keep whole replies: one whose end is not known may have been broken off."""
        if any(one.finish_reason is None or one.finish_reason == "error" for one in generation.completions):
            return
        with self._forgiven():
            if self._base is None:
                return
            key = self._key(request)
            rows: list[tuple[bytes, int, bytes]] = []
            for sample, one in enumerate(generation.completions[: request.n]):
                alone = generation.model_copy(update={"completions": (one,), "usage": None})
                rows.append((key, sample, alone.model_dump_json(exclude_defaults=True).encode()))
            if len(generation.completions) < request.n:
                rows += [(self._all_requests(), _IGNORES_N, b"")]
            self._base.executemany("INSERT OR IGNORE INTO replies_1 VALUES (?, ?, ?)", rows)
            self._kept += len(rows)
            if self._kept >= _LOOK_AT_SIZE_EVERY:
                self._kept = 0
                self._shrink()

    def close(self) -> None:
        """Close the file; the oldest replies make room where it has grown too large."""
        with self._forgiven():
            if self._base is not None:
                self._shrink()
        base, self._base = self._base, None
        if base is not None:
            with contextlib.suppress(sqlite3.Error):
                base.close()

    def _key(self, request: GenerateRequest) -> bytes:
        parts = request.model_dump(mode="json", exclude={"n": True, "messages": {"__all__": {"tokens"}}})
        return hashlib.sha256(self._prefix + b"\0" + to_json(parts)).digest()

    def _all_requests(self) -> bytes:
        return hashlib.sha256(self._prefix + b"\0n").digest()

    def _ignores_n(self) -> bool:
        assert self._base is not None
        found = self._base.execute(
            "SELECT 1 FROM replies_1 WHERE key = ? AND sample = ?",
            (self._all_requests(), _IGNORES_N),
        ).fetchone()
        return found is not None

    def _read(self, key: bytes, sample: int, data: Any) -> Generation | None:
        try:
            reply = Generation.model_validate_json(data)
            if len(reply.completions) == 1 and reply.completions[0].message.role == "assistant":
                return reply
        except (ValidationError, ValueError, TypeError):
            pass
        self._tell("row", f"the cache {self.path} holds replies that cannot be read; they are asked for again")
        assert self._base is not None
        self._base.execute(
            "DELETE FROM replies_1 WHERE key = ? AND sample >= ?",
            (key, sample),
        )
        return None

    def _connect(self) -> None:
        # In autocommit: a killed process leaves whole rows only.
        self._base = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        deadline = time.monotonic() + _OPENING_SECONDS
        while True:
            try:
                return self._prepare(self._base)
            except sqlite3.OperationalError as error:
                # SQLite does not wait its timeout while another process changes the journal mode of a new file.
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _prepare(self, base: sqlite3.Connection) -> None:
        # A write-ahead log needs shared memory, which other machines that see the file do not have.
        base.execute(f"PRAGMA journal_mode = {'WAL' if only_here(self.path) else 'DELETE'}")
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute("PRAGMA trusted_schema = OFF")
        base.execute(_TABLE)

    def _refuse_foreign(self) -> None:
        """Any other user who may write the file decides what the model is said to have answered."""
        info = self.path.stat()
        if info.st_uid != os.getuid() or info.st_mode & 0o022:
            raise DataError(
                f"the cache {self.path} may be written by others, so its replies are not believed",
                hint=f"chmod 600 {self.path}, or --cache-dir another folder",
            )

    def _shrink(self) -> None:
        assert self._base is not None
        base = self._base
        if self._size() <= self._most:
            return
        count, oldest = base.execute("SELECT count(*), min(rowid) FROM replies_1").fetchone()
        drop = int(count * max(1 - _KEEP, 1 - _KEEP * self._most / self._size()))
        if count and oldest is not None:
            base.execute(
                "DELETE FROM replies_1 WHERE rowid IN (SELECT rowid FROM replies_1 ORDER BY rowid LIMIT ?)",
                (max(1, drop),),
            )

    def _size(self) -> int:
        assert self._base is not None
        pages, free, size = (
            self._base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    @contextlib.contextmanager
    def _forgiven(self) -> Any:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                self._tell("busy", f"the cache {self.path} is in use, and some replies are not kept: {error}")
            else:
                self._tell("broken", f"the cache {self.path} is not used from here on: {error}")
                self._base = None
        except sqlite3.Error as error:
            self._tell("broken", f"the cache {self.path} is damaged ({error}) and not used; delete it")
            self._base = None

    def _tell(self, kind: str, message: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            log.warning("%s", message)


async def identity(backend: InferenceBackend, plan: Plan) -> JsonDict:
    """What decides an open backend's replies beside the request: its own word, else its options and the model's name.

    "known_by" says by what other weights would be noticed.
    """
    own = await backend.identity()
    about: JsonDict = {"backend": backend.name, "version": plan.backend.version, "model": backend.model}
    options: JsonDict = {name: value for name, value in plan.backend.config.items() if name not in _NO_PART}
    if own is not None:
        return {**about, **own, "options": options}
    files = _files(plan.model or backend.model)
    known_by = "the model's name and the server's address" if files is None else "the model's files"
    address = plan.backend.config.get("base_url")
    return {**about, "options": options, "address": address, "files": files, "known_by": known_by}


def _files(model: str | None) -> list[Any] | None:
    """Name, size and time of the model's files; None where it is not a path."""
    if not model:
        return None
    path = Path(home(model))
    try:
        if not path.exists():
            return None
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files if file.is_file()]
    except OSError:
        return None
