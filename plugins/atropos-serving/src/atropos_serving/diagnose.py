"""Why a server did not start: known lines of its log and what to do about each, and who has a port."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

_OFFLINE = (
    r"offline mode is enabled|cannot find the requested files in the (?:disk|local) cache"
    r"|couldn't connect to .*hugging"
)
_NO_CACHE = (
    r"no available memory for the cache|larger than the (?:maximum|available)[^\n]*KV cache"
    r"|not enough memory.*mem-fraction|no GPU memory for the KV cache"
)
_MEMORY_HINT = (
    "out of memory: a smaller --memory-fraction, --context or --max-requests, more --tp, "
    "or end other programs on the GPU (nvidia-smi)"
)
_KNOWN = (
    (
        _NO_CACHE,
        "no room for the key-value cache: a smaller --context, more of the GPU with --memory-fraction, or more --tp",
    ),
    (r"out of memory|OutOfMemoryError|cannot allocate memory|free memory on device", _MEMORY_HINT),
    (
        r"subprocess \S+ .*crashed with exit code -9",
        "SGLang lost a process, which the log names, to a SIGKILL: as a rule the kernel's, out of memory (see dmesg)",
    ),
    (r"bfloat16 is only supported", "this GPU has no bfloat16: --dtype float16"),
    (r"address already in use", "the port is taken: another --port"),
    (r"unrecognized arguments|error: argument|invalid choice", "an option behind -- that the engine does not know"),
    (r"gated repo|401 client error|403 client error|access to model .* is restricted", "the model needs HF_TOKEN"),
    (
        _OFFLINE,
        "the model is not here and there is no network: atropos prefetch --model NAME where there is one",
    ),
    (
        r"no module named|cannot open shared object file|undefined symbol",
        "the engine's installation is incomplete: try it by itself, with --help",
    ),
    (r"no kernel image is available", "the engine's kernels are not built for this GPU"),
)
_KNOWN_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), hint) for pattern, hint in _KNOWN)
_HARMLESS = re.compile(r"^.*Ignore import error.*$", re.MULTILINE)
"""Of models that SGLang could serve and this one is not."""
_READ = 1 << 18


def hint_of(log: Path) -> str | None:
    """What may help, by the last part of a log; None for nothing known."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _READ))
            text = _HARMLESS.sub("", file.read().decode("utf-8", "replace"))
    except OSError:
        return None
    return next((hint for pattern, hint in _KNOWN_COMPILED if pattern.search(text)), None)


def listening(port: int) -> bool:
    """Does any process on this machine listen on the TCP port?"""
    return bool(_inodes(port))


def port_owner(port: int) -> str | None:
    """Who listens on the port: "python (pid 123)". None: no process, or one of another user."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    for entry in Path("/proc").iterdir() if wanted else ():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if not wanted.isdisjoint(_links(entry / "fd")):
                return f"{(entry / 'comm').read_text().strip()} (pid {entry.name})"
    return None


def _links(folder: Path) -> Iterator[str]:
    for link in folder.iterdir():
        with contextlib.suppress(OSError):
            yield str(link.readlink())


def _inodes(port: int) -> set[str]:
    """Of the sockets that listen on a port, IPv4 and IPv6."""
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                cells = line.split()
                if cells[3] == "0A" and int(cells[1].rsplit(":", 1)[1], 16) == port:
                    found.add(cells[9])
    return found
