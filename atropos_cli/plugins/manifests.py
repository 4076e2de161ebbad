"""What each plugin says of itself, read in a child process and kept between commands.

A manifest is code of a stranger: it may hang, end the process, leave threads or change Python itself. So the
process that works never imports one to learn names. `surveyor` does, each in a child of its own with a time limit,
and what it learnt is kept in the user's cache, as long as nothing that was read for it has changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from atropos_cli.domain.methods import Method
from atropos_cli.paths import replacing, user_cache
from atropos_cli.plugins.entrypoints import DISABLE_VARIABLE, Entry, normalized
from atropos_cli.plugins.records import PluginFailure

SECONDS = 6.0
"""How long the import of one manifest, with its registration hooks, may take."""
LEAVING = 3.0
"""How long a process that has imported it may take to end."""
_FAILURES_KEPT = 300.0  # seconds: what failed may be mended in a file that nobody knows of
_FORMAT = 2

_START = """
import json, sys
request = json.load(sys.stdin)
sys.path[:] = request["path"]
import atropos_cli.sdk  # once, for all the children
from atropos_cli.plugins.surveyor import survey
survey(request)
"""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One plugin's manifest as data.

    components: fields of a ComponentSpec each; target None: an object that only the manifest itself has.
    files: what was read for it, with modification time (ns) and size. taken: when it was read, time.time().
    """

    components: list[dict[str, Any]] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    failures: list[PluginFailure] = field(default_factory=list)
    files: dict[str, list[int]] = field(default_factory=dict)
    taken: float = 0.0

    @property
    def is_usable(self) -> bool:
        """Could it be imported, by a process that could end afterwards?"""
        return not any(failure.stage == "import" for failure in self.failures)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """Raises TypeError, KeyError or ValueError for anything but what to_json gave."""
        failures = [PluginFailure(**failure) for failure in data["failures"]]
        components = [
            {
                **item,
                "requires": tuple(item["requires"]),
                "aliases": tuple(item["aliases"]),
                "methods": tuple(Method(**method) for method in item["methods"]),
            }
            for item in data["components"]
        ]
        return cls(components, list(data["hooks"]), failures, dict(data["files"]), float(data["taken"]))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def failed(cls, entry: Entry, error: str, files: Mapping[str, list[int]] | None = None) -> Manifest:
        """The manifest of a plugin that could not be read at all."""
        return cls(failures=[import_failure(entry, error)], files=dict(files or {}), taken=time.time())


def import_failure(entry: Entry, error: str) -> PluginFailure:
    """The import of a plugin failed without an exception."""
    hint = f"report it to the authors of {entry.dist}, or run without it: {DISABLE_VARIABLE}={entry.name}"
    return PluginFailure(entry.name, entry.dist, entry.version, "import", error, hint=hint)


def key_of(entry: Entry) -> str:
    """What an entry point is known by: another version or another place is another plugin."""
    root = "" if entry.record is None else str(entry.record.locate_file(""))
    return "|".join((normalized(entry.dist), entry.version, entry.name, entry.point.value, root))


def read_manifests(entries: Sequence[Entry], *, fresh: bool = False) -> tuple[list[Manifest], bool]:
    """The manifests of these entry points, in their order, and whether any of them comes from the cache."""
    if not entries:
        return [], False
    keys = [key_of(entry) for entry in entries]
    kept = _read_cache()
    known = {} if fresh else {key: found for key in keys if (found := _kept(kept, key)) is not None}
    todo = [(key, entry) for key, entry in zip(keys, entries, strict=True) if key not in known]
    if todo:
        new = dict(zip((key for key, _ in todo), _survey([entry for _, entry in todo]), strict=True))
        _write_cache({**kept, **{key: manifest.to_json() for key, manifest in new.items()}})
        return [known.get(key) or new[key] for key in keys], bool(known)
    return [known[key] for key in keys], True


# The child -----------------------------------------------------------------------------------------------------------


def _survey(entries: Sequence[Entry]) -> list[Manifest]:
    """Let a child read these manifests. Whatever happens to it, there is an answer for each."""
    told, theirs = os.pipe()
    request = {
        "path": sys.path,
        "keys": [key_of(entry) for entry in entries],
        "answer": theirs,
        "limits": (SECONDS, LEAVING),
    }
    answers: dict[int, Manifest] = {}
    trouble = "the process that reads manifests ended too early"
    try:
        child = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs,),
            start_new_session=True,
            # It would read the records of all distributions, and end at one that is damaged.
            env={**os.environ, "PYDANTIC_DISABLE_PLUGINS": "__all__"},
        )
    except OSError as error:
        os.close(told)
        os.close(theirs)
        return [
            Manifest.failed(entry, f"no process could be started to read it: {error.strerror}") for entry in entries
        ]
    os.close(theirs)
    try:
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError), child.stdin:
            child.stdin.write(json.dumps(request).encode())
        with os.fdopen(told, "rb") as lines:
            for line in lines:
                data = json.loads(line)
                answers[data["index"]] = Manifest.from_json(data["manifest"])
                if len(answers) == len(entries):
                    break
    finally:
        child.terminate()  # it ends its own children first; after the last answer there are none
        child.wait()
    return [answers.get(index) or Manifest.failed(entry, trouble) for index, entry in enumerate(entries)]


# The cache -----------------------------------------------------------------------------------------------------------


def _cache_file() -> Path | None:
    try:
        return user_cache() / "plugins.json"
    except RuntimeError:  # no home
        return None


def _surroundings() -> list[Any]:
    """What every manifest depends on: the interpreter, and what is installed beside it."""
    import sysconfig

    import atropos_cli

    places = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    return [_FORMAT, atropos_cli.__version__, sys.executable, sys.version, [[place, stamp(place)] for place in places]]


def stamp(path: str) -> list[int] | None:
    """Modification time and size of a file or folder; None when there is none."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return [found.st_mtime_ns, found.st_size]


def _read_cache() -> dict[str, Any]:
    """What is kept, by key. It names code to import: a file that others may write is not believed."""
    path = _cache_file()
    try:
        if path is None or path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o022:
            return {}
        data = json.loads(path.read_bytes())
        return dict(data["plugins"]) if data["surroundings"] == _surroundings() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _kept(cache: Mapping[str, Any], key: str) -> Manifest | None:
    try:
        found = Manifest.from_json(cache[key])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    age = time.time() - found.taken
    if age < 0 or (found.failures and age > _FAILURES_KEPT):
        return None
    return found if all(stamp(path) == then for path, then in found.files.items()) else None


def _write_cache(plugins: Mapping[str, Any]) -> None:
    """Keep what was learnt, if that is possible; commands that run at the same time take turns in overwriting it."""
    path = _cache_file()
    if path is None:
        return
    there = {key: value for key, value in plugins.items() if (root := key.rpartition("|")[2]) and Path(root).is_dir()}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, mode=0o600, sync=False) as file:
            file.write(json.dumps({"surroundings": _surroundings(), "plugins": there}).encode())
