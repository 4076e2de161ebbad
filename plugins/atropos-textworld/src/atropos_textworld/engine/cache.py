"""Compiled games on disk, shared by all runs of a user.

    <cache>/games/<key>.z8, <key>.json    key = sha256 of the game's Inform source and TextWorld's version
    <cache>/specs/<digest>.json           a GameRecord; digest = sha256 of the spec and of our generators
    <cache>/lock                          held while the cache is trimmed

Two specs with the same source share one compiled game; a changed generator finds no record and
makes its games anew. Files appear by renaming, so several processes may write the same game at
once. Games used longest ago are removed first when the cache grows beyond its bounds; a reader
that finds a game gone makes it again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from atropos_textworld.games.spec import GameSpec

STALE = 3600.0
"""Seconds after which an unfinished file must be a killed process's."""


@dataclass(frozen=True, slots=True)
class GameRecord:
    """What is known of a made game. `plan` is its winning commands and is never shown to a model.

    forms: the commands it knows, as in "put THING on THING".
    """

    spec: GameSpec
    key: str
    objective: str
    plan: tuple[str, ...]
    forms: tuple[str, ...]
    max_score: int
    make_seconds: float = 0.0
    compile_seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """A JSON object from which `from_json` makes the same record."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> GameRecord:
        """Raises KeyError or TypeError for an object that is no record."""
        values = dict(data)
        spec, plan, forms = GameSpec.from_json(values.pop("spec")), values.pop("plan"), values.pop("forms")
        return cls(spec=spec, plan=tuple(plan), forms=tuple(forms), **values)


def default_root() -> Path:
    """The user's cache folder for games: $XDG_CACHE_HOME/atropos/textworld."""
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base).expanduser() if base and base.startswith(("/", "~")) else Path.home() / ".cache"
    return root / "atropos" / "textworld"


@cache
def generators_digest() -> str:
    """A digest of the code that decides what a spec's game is, and of TextWorld's version."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256(metadata.version("textworld").encode())
    for path in sorted((package / "games").rglob("*")):
        if path.suffix in (".py", ".twl"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def content_key(source: str) -> str:
    """The name of a compiled game: a digest of what it was compiled from."""
    return hashlib.sha256(f"{metadata.version('textworld')}\0{source}".encode()).hexdigest()


class GameCache:
    """The cache under `root`, kept below `max_bytes` of compiled games."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.root = root
        self.max_bytes = max_bytes
        self.games = root / "games"
        self.specs = root / "specs"
        for folder in (self.games, self.specs):
            folder.mkdir(parents=True, exist_ok=True)

    def game_path(self, key: str) -> Path:
        """Where the compiled game is; its .json is beside it."""
        return self.games / f"{key}.z8"

    def _record_path(self, spec: GameSpec) -> Path:
        text = json.dumps(spec.as_json(), sort_keys=True) + generators_digest()
        return self.specs / (hashlib.sha256(text.encode()).hexdigest() + ".json")

    def has_game(self, key: str) -> bool:
        """Whether both files are there; marks them as just used."""
        path = self.game_path(key)
        try:
            os.utime(path.with_suffix(".json"))
            os.utime(path)
        except OSError:
            return False
        return True

    def find(self, spec: GameSpec) -> GameRecord | None:
        """The record of a spec whose game is there, marked as just used; else None."""
        path = self._record_path(spec)
        try:
            record = GameRecord.from_json(json.loads(path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if record.spec != spec or not self.has_game(record.key):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return record

    def unfinished(self) -> Path:
        """A new name inside the cache for a file being written; `put_game` or `discard` ends it."""
        return self.games / f"tmp-{os.getpid()}-{os.urandom(8).hex()}.z8"

    def put_game(self, key: str, unfinished: Path) -> None:
        """Take over a compiled game: `unfinished` (.z8) and the .json beside it."""
        path = self.game_path(key)
        # The .json first: a reader that sees the .z8 must find both.
        unfinished.with_suffix(".json").replace(path.with_suffix(".json"))
        unfinished.replace(path)

    def put_record(self, record: GameRecord) -> None:
        """Remember a spec's game."""
        unfinished = self.unfinished().with_suffix(".json")
        unfinished.write_text(json.dumps(record.as_json()), encoding="utf-8")
        unfinished.replace(self._record_path(record.spec))

    @staticmethod
    def discard(unfinished: Path) -> None:
        """Remove what was written for an unfinished game."""
        for suffix in (".z8", ".json", ".ni"):
            unfinished.with_suffix(suffix).unlink(missing_ok=True)

    def trim(self, keep: frozenset[str] = frozenset()) -> int:
        """Remove what was used longest ago until the bounds hold; keys in `keep` stay. Returns games removed."""
        with (self.root / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return 0  # Somebody else is trimming.
            return self._trim(keep)

    def _trim(self, keep: frozenset[str]) -> int:
        now = time.time()
        sizes: dict[str, int] = {}
        used: dict[str, float] = {}
        for path, size, mtime in _listing(self.games):
            if path.name.startswith("tmp-"):
                if now - mtime > STALE:
                    path.unlink(missing_ok=True)
                continue
            sizes[path.stem] = sizes.get(path.stem, 0) + size
            used[path.stem] = max(used.get(path.stem, 0.0), mtime)
        total, removed = sum(sizes.values()), 0
        for key in sorted(used, key=lambda key: used[key]):
            if total <= self.max_bytes:
                break
            if key not in keep:
                self.discard(self.game_path(key))
                total -= sizes[key]
                removed += 1
        self._trim_specs(limit=4 * max(len(used) - removed, 256))
        return removed

    def _trim_specs(self, limit: int) -> None:
        records = sorted(_listing(self.specs), key=lambda entry: entry[2])
        for path, _, _ in records[: max(len(records) - limit, 0)]:
            path.unlink(missing_ok=True)


def _listing(folder: Path) -> list[tuple[Path, int, float]]:
    """Path, size and modification time of each file that is still there."""
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append((path, status.st_size, status.st_mtime))
    return found
