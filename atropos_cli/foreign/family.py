"""What a plugin offers for a framework: its dialect, what to install, and the class for a name behind the prefix."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import types
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from atropos_cli.errors import UsageError
from atropos_cli.foreign.data import Data
from atropos_cli.foreign.options import config_model
from atropos_cli.foreign.process import Dialect, ForeignProcess
from atropos_cli.foreign.store import Added
from atropos_cli.io.answers import environment_stamps, kept_answer, stamp
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
    files = [] if beside is None else sorted(beside.parent.glob("*.py"))[:_MOST_FILES]
    stamps = [*(stamp(file) for file in (dialect.file, *files)), *environment_stamps(python)]

    def ask() -> Data:
        hello = _awaited(_ask(dialect, python, settings, cwd))
        return {**hello["about"], "versions": hello["versions"], "python": hello["python"]}

    return kept_answer("foreign", [dialect.name, python, settings, stamps], ask)


def _awaited(asked: Coroutine[Any, Any, Data]) -> Data:
    """In a thread: the caller may be in a loop of its own, as a run is that makes the parts of its plan.

    Ctrl-C, which the process of an environment does not see, breaks it off.
    """
    loop = asyncio.new_event_loop()
    task = loop.create_task(asked)

    def work() -> None:
        with contextlib.closing(loop):
            loop.run_until_complete(asyncio.wait({task}))
            loop.run_until_complete(loop.shutdown_default_executor())

    thread = threading.Thread(target=work, name="describe")
    thread.start()
    try:
        thread.join()
    except BaseException:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    return task.result()


async def _ask(dialect: Dialect, python: str, settings: Data, cwd: str | None) -> Data:
    process = ForeignProcess(dialect, python, settings, cwd=cwd)
    try:
        return await process.open()
    finally:
        await process.close()
