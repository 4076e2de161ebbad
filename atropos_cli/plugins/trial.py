"""Import components for real, in a child: one that hangs or crashes is a result, and the others are still tried."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from atropos_cli.errors import AtroposError
from atropos_cli.plugins.children import become_quiet, end_session, ending, write_all
from atropos_cli.plugins.errortext import describe_error, trace_of
from atropos_cli.plugins.records import Registration

SECONDS = 30.0
"""How long the import of one component may take: it may load a large library from a slow disk."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one component; error None: it can be used. traceback: for --debug."""

    error: str | None = None
    hint: str | None = None
    traceback: str = ""


def try_components(items: Sequence[Registration]) -> list[Trial]:
    """One result for each, in their order. They share a child, until one of them ends it."""
    results: list[Trial] = []
    while len(results) < len(items):
        results += _try_some(items[len(results) :])
    return results


def _try_some(items: Sequence[Registration]) -> list[Trial]:
    """The results up to the first component that hangs or ends the child; at least one."""
    ours, theirs = os.pipe()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        _child(items, theirs)
    os.close(theirs)
    results: list[Trial] = []
    text = b""
    since = time.monotonic()
    try:
        while len(results) < len(items):
            left = since + SECONDS - time.monotonic()
            if left <= 0 or not select.select([ours], [], [], left)[0]:
                return [*results, Trial(f"its import did not end within {SECONDS:.0f} s", _hint(items[0]))]
            block = os.read(ours, 1 << 16)
            if not block:
                return [*results, Trial(f"its import {ending(os.waitpid(pid, 0)[1])}", _hint(items[0]))]
            *lines, text = (text + block).split(b"\n")
            for line in lines:
                results.append(Trial(**json.loads(line)))
                since = time.monotonic()
    finally:
        end_session(pid)
        os.close(ours)
    return results


def _hint(item: Registration) -> str:
    return f"report it to the authors of {item.dist}"


def _child(items: Sequence[Registration], fd: int) -> None:
    """In the child: try them one by one and report each. Never returns."""
    code = 1
    with contextlib.suppress(BaseException):
        become_quiet(SECONDS)
        encode = json.JSONEncoder().encode  # a plugin may do anything to the module
        for item in items:
            signal.alarm(int(SECONDS) + 5)
            write_all(fd, encode(asdict(_try(item))).encode() + b"\n")
        code = 0
    os._exit(code)


def _try(item: Registration) -> Trial:
    try:
        item.load()
    except BaseException as error:  # noqa: BLE001 - a broken component is what we look for; it may call sys.exit
        if isinstance(error, AtroposError):
            return Trial(error.message, error.hint, trace_of(error))
        return Trial(describe_error(error), None, trace_of(error))
    return Trial()
