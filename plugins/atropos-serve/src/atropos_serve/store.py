"""The queue on disk: bodies of groups in segment files, and an index of them in SQLite.

A body is written before the row that names it, so whatever row is there has its body: kill -9 at any moment loses
nothing that was acknowledged. Without `sync` a power failure may tear the newest bodies; their checksum finds that.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_cli.sdk import DataError

SEGMENT_SIZE = 64 * 2**20
_INDEX = "queue.db"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS envs (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS groups (
    id INTEGER PRIMARY KEY, env INTEGER, size INTEGER NOT NULL, unit INTEGER, batch INTEGER, step INTEGER NOT NULL,
    segment INTEGER NOT NULL, place INTEGER NOT NULL, length INTEGER NOT NULL, checksum INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS of_batch ON groups (batch) WHERE batch IS NOT NULL;
CREATE TABLE IF NOT EXISTS batches (id INTEGER PRIMARY KEY, expires REAL NOT NULL);
CREATE TABLE IF NOT EXISTS seen (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);
"""
_KEYS_KEPT = 1_000_000
_LEAST_FREE = 32 * 2**20
_LOOK_EVERY = 4 * 2**20


_CHUNK = 500


def _chunks(ids: Sequence[int]) -> Iterator[tuple[Sequence[int], str]]:
    """Some ids at a time, with as many question marks."""
    for start in range(0, len(ids), _CHUNK):
        some = ids[start : start + _CHUNK]
        yield some, ",".join("?" * len(some))


@dataclass(frozen=True, slots=True)
class Row:
    """A group that waits (unit and batch None), is queued (unit), or is with a trainer (batch)."""

    id: int
    env: int | None
    size: int
    unit: int | None
    batch: int | None


@dataclass(frozen=True, slots=True)
class Stored:
    """A group that leaves. body: None if the disk has lost it; step: the trainer's when the group came."""

    id: int
    env: int | None
    size: int
    step: int
    body: bytes | None


class Store:
    """One server's folder; a second server of it is refused."""

    def __init__(self, folder: Path, *, sync: bool = False) -> None:
        self._folder = folder
        self._sync = sync
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(folder / _INDEX, isolation_level=None, timeout=0.5, check_same_thread=False)
        except sqlite3.Error as error:
            raise DataError(f"{folder / _INDEX}: {error}", hint="choose another folder") from None
        try:
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("COMMIT")
            self._db.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            self._db.close()
            if isinstance(error, sqlite3.OperationalError) and "lock" in str(error):
                raise DataError(f"another server uses {folder}", hint="give each server a folder of its own") from None
            raise DataError(f"{folder / _INDEX}: {error}", hint="choose another folder") from None
        self._live = self._counted()
        self._next = self._scalar("SELECT max(id) FROM (SELECT id FROM groups UNION ALL SELECT id FROM seen)") or 0
        self._next = max(self._next, int(self.facts().get("last_group", 0)))
        self._segment = self._file = -1
        self._place = self._room = 0
        self._open_files: dict[int, int] = {}
        self._drop_unused()
        self._new_segment()

    # -- facts and environments

    def facts(self) -> dict[str, Any]:
        return {name: json.loads(value) for name, value in self._db.execute("SELECT name, value FROM facts")}

    def set_fact(self, name: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    def envs(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for env, value in self._db.execute("SELECT id, value FROM envs ORDER BY id"):
            yield env, json.loads(value)

    def set_env(self, env: int, value: dict[str, Any]) -> None:
        self._db.execute("INSERT OR REPLACE INTO envs VALUES (?, ?)", (env, json.dumps(value)))

    # -- groups

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing on disk; the caller undoes its changes in memory after an error."""
        self._db.execute("BEGIN IMMEDIATE")
        segment, place = self._segment, self._place
        try:
            yield
            if self._sync:
                os.fdatasync(self._file)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._cut(segment, place)
            self._live = self._counted()
            self._drop_unused()
            raise

    def _cut(self, segment: int, place: int) -> None:
        """Drop what a failed transaction wrote: a full disk needs the room."""
        self._place = place if self._segment == segment else 0
        for file, size in ((self._open_files.get(segment), place), (self._file, self._place)):
            if file is not None:
                with contextlib.suppress(OSError):
                    os.ftruncate(file, size)

    def _check_room(self, length: int) -> None:
        """Raises OSError while the disk is nearly full: without room the index could not give groups away either."""
        self._room -= length
        if self._room < 0:
            found = os.statvfs(self._folder)
            left = _LOOK_EVERY
            if found.f_blocks:  # some network disks do not say
                left = found.f_bavail * found.f_frsize - _LEAST_FREE - length
            self._room = min(_LOOK_EVERY, left)
            if self._room < 0:
                if self._place:  # its room is free again when the groups in it have left, not when it is full
                    self._new_segment()
                raise OSError(errno.ENOSPC, f"less than {_LEAST_FREE >> 20} MB are free")

    def known(self, key: str) -> bool:
        """Has a request with this key been stored?"""
        return self._db.execute("SELECT 1 FROM seen WHERE key = ?", (key,)).fetchone() is not None

    def remember(self, key: str, group: int) -> None:
        self._db.execute("INSERT INTO seen VALUES (?, ?)", (group, key))
        if group % 1000 == 0:
            self._db.execute("DELETE FROM seen WHERE id <= ?", (group - _KEYS_KEPT,))

    def add(self, env: int | None, size: int, step: int, body: bytes, *, queued: bool = False) -> int:
        """Append a group; its id. Inside a transaction. queued: it is a unit by itself."""
        if self._place >= SEGMENT_SIZE:
            self._new_segment()
        self._check_room(len(body))
        written = 0
        while written < len(body):
            written += os.pwrite(self._file, body[written:] if written else body, self._place + written)
        self._next += 1
        self._db.execute(
            "INSERT INTO groups VALUES (?, ?, ?, ?, NULL, ?, ?, ?, ?, ?)",
            (
                self._next,
                env,
                size,
                self._next if queued else None,
                step,
                self._segment,
                self._place,
                len(body),
                zlib.crc32(body),
            ),
        )
        self._place += len(body)
        self._live[self._segment] += 1
        return self._next

    def set_unit(self, unit: int, groups: Iterable[int]) -> None:
        self._db.executemany("UPDATE groups SET unit = ? WHERE id = ?", [(unit, group) for group in groups])

    def unpack(self) -> None:
        """Queued groups are units no longer: they wait."""
        self._db.execute("UPDATE groups SET unit = NULL WHERE unit IS NOT NULL AND batch IS NULL")

    def queued(self) -> Iterator[tuple[int, int | None, int, int]]:
        """Unit, environment, id and size of queued groups, unit by unit."""
        return self._db.execute(
            "SELECT unit, env, id, size FROM groups WHERE unit IS NOT NULL AND batch IS NULL ORDER BY unit, id"
        )

    def others(self) -> Iterator[Row]:
        """The groups that are not queued: they wait, or are with a trainer."""
        for row in self._db.execute(
            "SELECT id, env, size, unit, batch FROM groups WHERE unit IS NULL OR batch IS NOT NULL ORDER BY id"
        ):
            yield Row(*row)

    def read(self, groups: Sequence[int]) -> list[Stored]:
        """Groups with their bodies, in the order given."""
        found: dict[int, Stored] = {}
        for ids, marks in _chunks(groups):
            query = f"SELECT id, env, size, step, segment, place, length, checksum FROM groups WHERE id IN ({marks})"  # noqa: S608
            for group, env, size, step, segment, place, length, checksum in self._db.execute(query, ids):
                found[group] = Stored(group, env, size, step, self._body(segment, place, length, checksum))
        return [found[group] for group in groups]

    def _body(self, segment: int, place: int, length: int, checksum: int) -> bytes | None:
        try:
            body = os.pread(self._descriptor(segment), length, place)
        except OSError:
            return None
        return body if zlib.crc32(body) == checksum else None

    def remove(self, groups: Sequence[int]) -> None:
        """Forget groups. Inside a transaction; `tidy` after it frees the disk."""
        for ids, marks in _chunks(groups):
            query = f"DELETE FROM groups WHERE id IN ({marks}) RETURNING segment"  # noqa: S608
            for (segment,) in self._db.execute(query, ids).fetchall():
                self._live[segment] -= 1

    def tidy(self) -> None:
        """Delete segments that hold no group any more."""
        for segment in [segment for segment, count in self._live.items() if count <= 0 and segment != self._segment]:
            del self._live[segment]
            self._delete(segment)

    # -- batches with trainers

    def lease(self, batch: int, groups: Iterable[int], expires: float) -> None:
        self._db.executemany("UPDATE groups SET batch = ? WHERE id = ?", [(batch, group) for group in groups])
        self.set_expiry(batch, expires)

    def set_expiry(self, batch: int, expires: float) -> None:
        self._db.execute("INSERT OR REPLACE INTO batches VALUES (?, ?)", (batch, expires))

    def batches(self) -> dict[int, float]:
        """Batches that no trainer has acknowledged, with the times until which they are lent."""
        return dict(self._db.execute("SELECT id, expires FROM batches ORDER BY id"))

    def groups_of(self, batch: int) -> list[int]:
        found = self._db.execute("SELECT id FROM groups WHERE batch = ? ORDER BY unit, id", (batch,))
        return [group for (group,) in found]

    def release(self, batch: int) -> None:
        """No trainer has the batch any more; its groups stay."""
        self._db.execute("UPDATE groups SET batch = NULL WHERE batch = ?", (batch,))
        self.end_batch(batch)

    def end_batch(self, batch: int) -> None:
        self._db.execute("DELETE FROM batches WHERE id = ?", (batch,))

    # -- the whole

    def clear(self, facts: Mapping[str, Any]) -> None:
        """Forget all groups, and the facts but these. Environments and ids stay: they are still in use."""
        with self.transaction():
            for table in ("groups", "batches", "facts", "seen"):
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own
            for name, value in {**facts, "last_group": self._next}.items():
                self.set_fact(name, value)
        self._live.clear()
        self._new_segment()
        self._drop_unused()

    def close(self) -> None:
        for file in self._open_files.values():
            os.close(file)
        self._open_files.clear()
        self._db.close()

    def _counted(self) -> Counter[int]:
        """How many groups each segment holds."""
        return Counter(dict(self._db.execute("SELECT segment, count(*) FROM groups GROUP BY 1")))

    def _scalar(self, query: str) -> int | None:
        found = self._db.execute(query).fetchone()
        return None if found is None else found[0]

    def _path(self, segment: int) -> Path:
        return self._folder / f"groups-{segment:06}.log"

    def _segments(self) -> list[int]:
        names = [path.stem.partition("-")[2] for path in self._folder.glob("groups-*.log")]
        return [int(name) for name in names if name.isdecimal()]

    def _drop_unused(self) -> None:
        for segment in self._segments():
            if self._live[segment] <= 0 and segment != self._segment:
                self._delete(segment)

    def _delete(self, segment: int) -> None:
        if (file := self._open_files.pop(segment, None)) is not None:
            os.close(file)
        with contextlib.suppress(OSError):  # a batch must not be lost for it; the next start tries again
            self._path(segment).unlink()

    def _new_segment(self) -> None:
        if self._sync and self._file >= 0:
            os.fdatasync(self._file)  # the end of the transaction sees the new one only
        # Never one that exists: its end may be half a body of a process that was killed.
        self._segment = max([self._segment, *self._segments(), *self._live]) + 1
        self._file = os.open(self._path(self._segment), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._open_files[self._segment] = self._file
        self._place = 0
        if self._sync:
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _descriptor(self, segment: int) -> int:
        if segment not in self._open_files:
            if len(self._open_files) > 16:
                oldest = next(one for one in self._open_files if one != self._segment)
                os.close(self._open_files.pop(oldest))
            self._open_files[segment] = os.open(self._path(segment), os.O_RDONLY)
        return self._open_files[segment]
