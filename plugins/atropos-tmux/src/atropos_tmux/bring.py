"""A folder of code to another machine, over the ssh of every other request: only files that differ are sent.

    near                              far
    the request: names and digests
                                      READY, and which files are missing there
    their bytes, one after another
                                      where the code is now, and notes

The far side writes a file whole or not at all, checks its digest, and refuses while a job runs there with other code.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from atropos_cli.sdk import AtroposError, DataError
from atropos_cli.sdk.code import Found, Item, begin, digest_at, missing, opened, put, settle
from atropos_cli.sdk.launchers import Code, LaunchError

DEFAULT = "~/atropos-code"
"""Where copies go that no --cwd places."""
PAYLOAD = 3
"""The descriptor with ssh's standard input."""
_BLOCK = 1 << 20


def request(found: Found, place: str | None, *, dry_run: bool) -> dict[str, Any]:
    """What the far side is asked."""
    return {
        "place": place or f"{DEFAULT}/{found.folder.name or 'code'}",
        "items": [[item.path, item.size, item.mode, item.mark] for item in found.items],
        "code": found.code("").model_dump(mode="json"),
        "dry_run": dry_run,
    }


def send(found: Found, numbers: Iterable[int], target: IO[bytes]) -> int:
    """The bytes of the files with these numbers; how many. Raises DataError for one that has changed its size."""
    sent = 0
    for number in numbers:
        item = found.items[number]
        if item.target is not None:
            continue
        with opened(found, item) as file:
            left = item.size
            while left and (block := file.read(min(_BLOCK, left))):
                target.write(block)
                left -= len(block)
        if left:
            raise DataError(f"{item.path} changed while it was sent", hint="the same command again")
        sent += item.size
    target.flush()
    return sent


# The far side --------------------------------------------------------------------------------------------------------


def receive(asked: dict[str, Any]) -> None:
    """Answer on standard output, a line of JSON each: {"need": ...}, then {"place": ..., "notes": ...}."""
    items = [Item(str(path), int(size), int(mode), str(mark)) for path, size, mode, mark in asked["items"]]
    code = Code.model_validate(asked["code"])
    try:
        place = Path(asked["place"]).expanduser().absolute()
        same = digest_at(place) == code.digest
        todo = missing(place, items)
        if todo or not same:
            _check_unused(place)
        if asked["dry_run"]:
            _say({"place": str(place), "need": len(todo), "size": sum(item.size for item in todo)})
            return
        numbers = {item.path: number for number, item in enumerate(items)}
        begin(place, items) if todo or not same else None
        _say({"place": str(place), "need": [numbers[item.path] for item in todo]})
        notes: list[str] = []
        with os.fdopen(PAYLOAD, "rb") as source:
            for item in todo:
                notes += put(place, item, None if item.target is not None else source)
        settle(place, items, code.replace(copy_at=str(place)))
        _say({"place": str(place), "notes": notes})
    except AtroposError as error:
        _say({"error": error.message, "hint": error.hint})
    except (OSError, RuntimeError) as error:
        name = getattr(error, "filename", None) or asked["place"]
        _say({"error": f"{name}: {getattr(error, 'strerror', None) or error}", "hint": "give another --cwd"})


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _check_unused(place: Path) -> None:
    """Raises LaunchError while a job of any socket runs there."""
    from atropos_tmux.launcher import TmuxConfig, TmuxLauncher

    base = TmuxLauncher().state_folder.parent
    for folder in sorted(base.glob("*")) if base.is_dir() else ():
        with contextlib.suppress(ValueError):
            launcher = TmuxLauncher(TmuxConfig(socket=folder.name))
            for name, cwd in launcher.working_in():
                if cwd == place or place in cwd.parents:
                    raise LaunchError(
                        f"job {name} runs in {place}, and the code that is there now differs",
                        hint=f"wait for it, atropos tmux stop {name}, or give another --cwd",
                    )
