"""Standard output is data: what plugins and libraries print, by whatever way, goes to standard error."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

_data: TextIO | None = None
_inside = 0
_changing = threading.Lock()


def data_stream() -> TextIO:
    """Where data goes, also while `sys.stdout` is standard error."""
    return _data or sys.stdout


def data_fd() -> int | None:
    """The same as a file descriptor, for programs we start that speak for us; None: as they inherit it."""
    try:
        return data_stream().fileno()
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """While code of plugins may run: its print() is a message, and only data_stream() is standard output.

    Several threads may be inside, and leave in any order: the last one gives standard output back.
    """
    global _data, _inside
    with _changing:
        if not _inside:
            _data, sys.stdout = sys.stdout, sys.stderr
        _inside += 1
    try:
        yield
    finally:
        with _changing:
            _inside -= 1
            if not _inside and _data is not None:
                sys.stdout, _data = _data, None


def open_closed() -> None:
    """What was closed at the start (`2>&-`, some daemons) goes nowhere, and no file of ours takes its place."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def claim_stdout() -> None:
    """Keep standard output for `sys.stdout` alone: file descriptor 1 is standard error from here on.

    Code that is not Python, and programs started by anybody, write to the descriptor. Call it once, at the start.
    """
    plain = sys.stdout
    if plain is None:
        return
    try:
        plain.flush()
        own = os.dup(1)
    except OSError:
        return
    try:
        os.dup2(2, 1)
    except OSError:  # no standard error: then all stays as it is
        os.close(own)
        return
    unbuffered = isinstance(plain, io.TextIOWrapper) and plain.write_through
    stream = io.TextIOWrapper(
        open(own, "wb", buffering=0) if unbuffered else open(own, "wb"),  # noqa: PTH123, SIM115
        encoding=plain.encoding,
        errors="backslashreplace",
        line_buffering=plain.isatty(),
        write_through=unbuffered,
    )
    sys.stdout = sys.__stdout__ = stream  # type: ignore[misc]


def give_back_stdout() -> None:
    """Before this process becomes another program: descriptor 1 is standard output again."""
    data = data_stream()
    data.flush()
    with contextlib.suppress(OSError, ValueError):
        os.dup2(data.fileno(), 1)
