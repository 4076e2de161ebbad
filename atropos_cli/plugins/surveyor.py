"""The process that reads manifests: it imports each plugin in a child of its own and reports the result.

A child is also left to end by itself: one that cannot (threads, a function registered with atexit) would keep
every program that imports the plugin from ending, and that is reported as well.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.machinery
import json
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from atropos_cli.plugins import entrypoints
from atropos_cli.plugins.children import become_quiet, end_session, ending, write_all
from atropos_cli.plugins.entrypoints import Entry
from atropos_cli.plugins.loader import Loader
from atropos_cli.plugins.manifests import Manifest, import_failure, key_of, stamp
from atropos_cli.plugins.records import PluginFailure, PluginInfo
from atropos_cli.plugins.spec import ComponentSpec

_AT_ONCE = max(4, os.cpu_count() or 1)
_LOOK = 0.01  # seconds between two looks at the children
_MOST_FILES = 100


@dataclass(frozen=True, slots=True)
class _Limits:
    """Seconds that a child may take to import a plugin, and to end afterwards."""

    importing: float
    leaving: float


@dataclass
class _Child:
    """A process that imports one plugin. manifest: its report, once it is there; since: of the present stage."""

    index: int
    entry: Entry
    pid: int
    fd: int
    since: float
    text: bytes = b""
    manifest: Manifest | None = None


def survey(request: Mapping[str, Any]) -> None:
    """Read the manifests with these keys; one line of JSON for each goes to the answer's file descriptor."""
    limits = _Limits(*request["limits"])
    known = {key_of(entry): entry for entry in entrypoints.scan()[0]}
    waiting = deque((index, known[key]) for index, key in enumerate(request["keys"]) if key in known)
    running: list[_Child] = []
    signal.signal(signal.SIGTERM, lambda *_: _stop(running))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who started us may have ignored it: then no child can be waited for
    gc.freeze()  # what the children share is not theirs to look through
    while waiting or running:
        while waiting and len(running) < _AT_ONCE:
            index, entry = waiting.popleft()
            child = _start(index, entry, request["answer"], limits)
            if child is None:
                return  # this is the child, and it has told all: it goes on to its end
            running.append(child)
        select.select([child.fd for child in running if child.manifest is None], [], [], _LOOK)
        for child in list(running):
            if (manifest := _look(child, limits)) is not None:
                running.remove(child)
                _end(child)
                line = json.dumps({"index": child.index, "manifest": manifest.to_json()})
                write_all(request["answer"], line.encode() + b"\n")


def _look(child: _Child, limits: _Limits) -> Manifest | None:
    """What is known of the plugin, once its child has ended or its time is up."""
    if child.manifest is None:
        _read(child)
    ended, status = os.waitpid(child.pid, os.WNOHANG)
    if ended and child.manifest is None:
        _read(child)
    passed = time.monotonic() - child.since
    if child.manifest is None:
        if ended:
            return Manifest.failed(child.entry, f"its import {ending(status)}", _files_of(child.entry))
        if passed > limits.importing:
            return Manifest.failed(
                child.entry, f"its import did not end within {limits.importing:.0f} s", _files_of(child.entry)
            )
        return None
    if ended and os.WIFEXITED(status):
        return child.manifest
    if ended:
        return _with_failure(child, f"a process that imported it {ending(status)}")
    if passed > limits.leaving:
        return _with_failure(child, "it keeps a program that imports it from ending (a thread, or a function at exit)")
    return None


def _with_failure(child: _Child, error: str) -> Manifest:
    assert child.manifest is not None
    return replace(child.manifest, failures=[*child.manifest.failures, import_failure(child.entry, error)])


def _read(child: _Child) -> None:
    """Take what the child has written. Not the end of the pipe but a newline ends it: others may hold the pipe."""
    while select.select([child.fd], [], [], 0)[0] and (block := os.read(child.fd, 1 << 16)):
        child.text += block
        if block.endswith(b"\n"):
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                child.manifest, child.since = Manifest.from_json(json.loads(child.text)), time.monotonic()
            return


def _end(child: _Child) -> None:
    """Nothing of it stays: the child leads a session of its own."""
    end_session(child.pid)
    os.close(child.fd)


def _stop(running: list[_Child]) -> None:
    for child in running:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    os._exit(1)


# In the child --------------------------------------------------------------------------------------------------------


def _start(index: int, entry: Entry, answer: int, limits: _Limits) -> _Child | None:
    """Start a child that imports the plugin. Returns None in the child, when it has sent its report."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return _Child(index, entry, pid, ours, time.monotonic())
    os.close(ours)
    os.close(answer)
    become_quiet(limits.importing + limits.leaving)
    encode = json.JSONEncoder().encode  # a plugin may do anything to the module
    data = encode(_examine(entry).to_json()).encode() + b"\n"
    sys.setrecursionlimit(1000)
    write_all(theirs, data)
    os.close(theirs)
    return None


def _examine(entry: Entry) -> Manifest:
    before = set(sys.modules)
    limit = sys.getrecursionlimit()
    loader = Loader(strict=False)
    try:
        loader.load(entry)
    except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt too: nobody pressed a key
        info = PluginInfo(entry.name, entry.dist, entry.version, entry.point.value)
        loader.failures.append(PluginFailure.of(info, "import", error))
    finally:
        sys.setrecursionlimit(limit)
    new = (getattr(sys.modules[name], "__file__", None) for name in sorted(set(sys.modules) - before))
    return Manifest(
        components=[_component(item.spec) for item in loader.registrations.values()],
        hooks=list(loader.hooks),
        failures=loader.failures,
        files=_files_of(entry, (path for path in new if isinstance(path, str))),
        taken=time.time(),
    )


def _component(spec: ComponentSpec) -> dict[str, Any]:
    target = str(spec.target) if spec.kind == "template" else spec.target if isinstance(spec.target, str) else None
    return {
        "kind": spec.kind,
        "name": spec.name,
        "target": target,
        "summary": str(spec.summary),
        "requires": [str(name) for name in spec.requires],
        "extra": None if spec.extra is None else str(spec.extra),
        "aliases": [str(name) for name in spec.aliases],
        "family": bool(spec.family),
        "methods": [asdict(method) for method in spec.methods],
    }


def _files_of(entry: Entry, imported: Iterable[str] = ()) -> dict[str, list[int]]:
    """The files that the manifest was made from, as far as they are known, with their stamps."""
    top = entry.module.partition(".")[0]
    paths: list[str | None] = []
    with contextlib.suppress(Exception):
        found = importlib.machinery.PathFinder.find_spec(top)
        paths.append(found.origin if found is not None else None)
    paths += [path for path in imported if not path.startswith(_STANDARD)]
    stamps = {path: stamp(path) for path in paths[:_MOST_FILES] if path}
    return {path: found for path, found in stamps.items() if found is not None}


_STANDARD = os.path.dirname(threading.__file__) + os.sep  # noqa: PTH120
