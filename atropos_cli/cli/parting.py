"""What a pass in shards is made from: its words and options as one digest, its inputs, its folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.console.ending import without_option
from atropos_cli.errors import RunLocked, UsageError
from atropos_cli.io.lock import file_lock

if TYPE_CHECKING:
    from atropos_cli.io.sources import Source

_OWN = ("on", "shards", "on_options", "resume", "overwrite", "output")
_FREE = ("workers", "max_error_rate", "max_failure_rate")
"""Options that no row depends on: a command may be resumed with others."""


def options_digest(options: Any) -> str:
    """What the rows depend on: the options of the command without those that say who makes them, and where they go."""
    data = options.model_dump_json(exclude={*_OWN, *_FREE})
    return blake2b(data.encode("utf-8", "replace"), digest_size=16).hexdigest()


def part_words(args: Sequence[str]) -> list[str]:
    """The command as a part is given it."""
    words = without_option(args, "--on")[0]
    words = without_option(without_option(words, "--shards")[0], "--on-option")[0]
    return [word for word in words if word not in ("--resume", "--json")]


def kept_words(words: Sequence[str]) -> list[str]:
    """Those words of a command that must be the same when it is resumed."""
    kept = [word for word in words if word != "--overwrite"]
    return without_option(kept, *(f"--{name.replace('_', '-')}" for name in _FREE))[0]


def identities(sources: Sequence[Source]) -> list[str]:
    found = []
    for source in sources:
        if source.path is not None:
            status = source.path.stat()
            found.append(f"{source.name} {status.st_size} {status.st_mtime_ns}")
    return found


def check_shared(source: Source) -> None:
    from atropos_cli.io.remote import is_remote

    if source.path is None or is_remote(source.name):
        raise UsageError(
            f"{source.name} cannot be read by the shards", hint="copy it to a file system that all nodes share"
        )


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder. Raises RunLocked when another process does."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock(folder / "lock", wait=0))
        except BlockingIOError as error:
            raise RunLocked(f"{folder} is being made by another process", hint="wait until it ends") from error
        yield
