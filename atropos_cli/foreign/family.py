"""What a plugin offers for a framework: its dialect, what to install, and the class for a name behind the prefix."""

from __future__ import annotations

import asyncio
import hashlib
import json
import types
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from atropos_cli.errors import UsageError
from atropos_cli.foreign.data import Data
from atropos_cli.foreign.options import config_model
from atropos_cli.foreign.process import Dialect, ForeignProcess
from atropos_cli.foreign.store import Added
from atropos_cli.paths import replacing, user_cache
from atropos_cli.ports.environment import Environment

E = TypeVar("E", bound=Environment)
_MOST_FILES = 200


@dataclass(frozen=True, slots=True)
class Family:
    """The target of a ComponentSpec with family=True, or the attribute `framework` of a trainer.

    requirements: what `atropos env add` installs. make: the environment class for the REST of PREFIX:REST, for ""
    one with the options that all have. check_source: the source of `--from`, resolved. bare: requirements installed
    without their own dependencies, of which `requirements` has those that are needed. installs: what a source needs
    to be installed, in the place of `requirements`; each source then has a Python of its own. named: without `--from`,
    is the environment's name its source? least: the oldest Python that its packages are for, where ours may be older.
    """

    dialect: Dialect
    requirements: tuple[str, ...]
    make: Callable[[str], type[Any]]
    check_source: Callable[[str], str]
    bare: tuple[str, ...] = ()
    installs: Callable[[str], tuple[str, ...]] | None = None
    named: bool = False
    least: tuple[int, int] | None = None

    def __call__(self, rest: str) -> type[Any]:
        return self.make(rest)


def server_class(base: type[E], rest: str) -> type[E]:
    """The class for PREFIX:URL, with the address as `url`; `base` for the prefix alone. Nothing is asked of the server.

    Raises UsageError where REST is not an address.
    """
    if not rest:
        return base
    try:
        parts = urlsplit(rest)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as [::1 without its end, or a port that is no number
        good = False
    if not good:
        raise UsageError(f"{rest!r} is not the address of a server", hint=f"{base.name}:http://HOST:PORT")
    return _subclass(base, rest, {"url": rest})


def process_class(
    base: type[E],
    dialect: Dialect,
    record: Added,
    settings: Data,
    *,
    beside: Path | None = None,
    hidden: Collection[str] = (),
) -> tuple[type[E], Data]:
    """(the class for an environment in a process of its own, what the environment says of itself).

    Its options are those of `base.Config` and the environment's own, without the hidden ones. It starts its process
    from `source`, `python` and `own_values`. The environment's Python is started now, when it is new.
    """
    about = describe(dialect, record.python, {**settings, "mode": "describe"}, beside=beside)
    made = {
        "Config": config_model(f"{record.name}Config", base.Config, about["schema"], about["values"], hidden),
        "source": record.source,
        "python": record.python,
        "own_values": about["values"],
        "__doc__": about["doc"] or base.__doc__,
    }
    return _subclass(base, record.name, made), about


def _subclass(base: type[E], rest: str, body: Data) -> type[E]:
    named = {"name": f"{base.name}:{rest}", "__doc__": base.__doc__, "__module__": base.__module__}
    return cast("type[E]", types.new_class(rest, (base,), exec_body=lambda names: names.update({**named, **body})))


def describe(
    dialect: Dialect, python: str, settings: Data, *, beside: Path | None = None, cwd: str | None = None
) -> Data:
    """What an environment says of itself, which takes a start of its process, kept in the user's cache.

    beside: a file; while the Python files of its folder do not change, what is kept is used. Raises PluginError.
    """
    key = [
        dialect.name,
        python,
        settings,
        [_stamp(file) for file in _around(beside)],
        _stamp(dialect.file),
        _stamp(_made(python)),
    ]
    name = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()[:24]
    file = user_cache() / "foreign" / f"{name}.json"
    try:
        kept: Data = json.loads(file.read_bytes())
        return kept
    except (OSError, ValueError):
        pass
    hello = asyncio.run(_ask(ForeignProcess(dialect, python, settings, cwd=cwd)))
    about: Data = {**hello["about"], "versions": hello["versions"], "python": hello["python"]}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file, sync=False) as out:
            out.write(json.dumps(about).encode())
    except OSError:
        pass
    return about


async def _ask(process: ForeignProcess) -> Data:
    try:
        return await process.open()
    finally:
        await process.close()


def _made(python: str) -> Path:
    """The file that says when a virtual environment was made: other packages may be in it since."""
    return Path(python).parent.parent / "pyvenv.cfg"


def _around(file: Path | None) -> list[Path]:
    return [] if file is None else sorted(file.parent.glob("*.py"))[:_MOST_FILES]


def _stamp(file: Path) -> tuple[str, int, int]:
    try:
        found = file.stat()
    except OSError:
        return (str(file), 0, 0)
    return (str(file), found.st_mtime_ns, found.st_size)
