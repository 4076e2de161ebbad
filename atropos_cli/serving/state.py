"""Servers that atropos launched on this machine or account: one folder each, ~/.local/state/atropos/servers/NAME.

    server.json     what runs there and how it stands        lock       held as long as it runs
    job.json, events.jsonl, endpoints/, logs/, exit.json      as in every job's folder
    launch.log      what a detached launcher printed

Whether a server runs is told by the lock, which the kernel takes away from a process that ends in any way.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from atropos_cli.errors import LaunchError, UsageError
from atropos_cli.io.append import atomic_write
from atropos_cli.io.jsonvalue import read_object
from atropos_cli.io.lock import file_lock, lock_fd
from atropos_cli.network import any_proxy, go_direct
from atropos_cli.serving.endpoints import batch_state
from atropos_cli.serving.record import ServerRecord

if TYPE_CHECKING:
    from pydantic import TypeAdapter

STATE_FILE = "server.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def servers_folder() -> Path:
    """Where the folders of all servers are."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "atropos" / "servers"


def server_folder(name: str) -> Path:
    """The folder of a server by name. Raises UsageError for what cannot be a name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a server's name", hint="letters, digits, '.', '_' and '-'")
    return servers_folder() / name


def default_name(model: str) -> str:
    """The last part of a model's name or path."""
    text = re.sub(r"[^A-Za-z0-9_.-]+", "-", model.rstrip("/").rsplit("/", 1)[-1]).strip("-._")
    return text[:60] or "server"


def write_record(folder: Path, record: ServerRecord) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / STATE_FILE, json.dumps(asdict(record), indent=2).encode() + b"\n")


@cache
def _reader() -> TypeAdapter[ServerRecord]:
    """Made once: it takes longer than the reading of all records."""
    from pydantic import TypeAdapter

    return TypeAdapter(ServerRecord)


def read_server(folder: Path) -> ServerRecord | None:
    """The record as it is to be believed now: a server whose launcher has vanished is gone. None: no such server."""
    try:
        record = _reader().validate_python(read_object(folder / STATE_FILE))
        for url in record.urls:
            if not urlsplit(url).hostname or urlsplit(url).port == 0:
                return None
    except (OSError, ValueError):  # unreadable, half written, or of another make
        return None
    if record.launcher == "slurm":
        return batch_state(folder, record) if record.state in ("starting", "ready") else record
    here = record.host == socket.gethostname()
    if record.state in ("starting", "ready") and here and not running(folder):
        return record.replace(state="gone", reason="its launcher was killed, or the machine restarted")
    return record


def all_servers() -> list[ServerRecord]:
    """Every server with a record, the newest last."""
    found = [read_server(path.parent) for path in servers_folder().glob(f"*/{STATE_FILE}")]
    return sorted((record for record in found if record is not None), key=lambda record: record.started)


def running(folder: Path) -> bool:
    """Does a launcher on this machine hold the folder?"""
    try:
        with file_lock(folder / "lock", wait=0):
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def reach_directly() -> None:
    """A proxy leads out of the cluster: servers that this account started on its nodes are asked without one."""
    if any_proxy():
        for record in all_servers():
            for url in record.urls if record.state == "ready" else ():
                go_direct(url)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder. Raises LaunchError when another launcher does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("ab") as file:
        try:
            lock_fd(file.fileno(), wait=0.5)  # somebody may just be looking
        except BlockingIOError:
            raise taken(folder) from None
        yield


def taken(folder: Path) -> LaunchError:
    """The error for a name that is in use."""
    record = read_server(folder)
    what = f" ({record.engine}, {record.model}, {', '.join(record.urls) or 'starting'})" if record else ""
    return LaunchError(
        f"a server {folder.name!r} is running already{what}",
        hint="give another --name, or end it with --stop --name " + folder.name,
    )
