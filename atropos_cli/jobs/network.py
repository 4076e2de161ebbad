"""The address and the ports of a component on its node. Standard library only."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from zlib import crc32

FIRST, LAST = 20000, 30000
"""Below the range from which the kernel takes ports of outgoing connections (32768 and up)."""
_SIOCGIFADDR = 0x8915


class NoAddress(Exception):
    """The interface that was asked for has no address here."""


class NoPort(Exception):
    """Every port that was tried is taken."""


def own_address(*, local: bool, interface: str | None) -> str:
    """An address of this node that the other nodes reach; the loopback address when only this node will ask."""
    if interface:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
            except OSError as error:
                names = ", ".join(name for _, name in socket.if_nameindex())
                raise NoAddress(f"interface {interface!r} has no address here (there are: {names})") from error
        return socket.inet_ntoa(answer[20:24])
    if local:
        return "127.0.0.1"
    for name in (os.environ.get("SLURMD_NODENAME"), socket.gethostname()):
        found = _resolved(name) if name else None
        if found:
            return found
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only asks which address the default route has
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _resolved(name: str) -> str | None:
    """The name's first address that is not a loopback one (Debian maps a host's own name to 127.0.1.1)."""
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return None
    addresses = [str(item[4][0]) for item in found]
    return next((address for address in addresses if not address.startswith("127.")), None)


class Ports:
    """Free ports of this node, each held against other components of ours until `close`.

    The server binds its port some time after we looked. Against our own programs (another job on the node
    that starts at the same moment) an abstract socket named for the port is kept open; it vanishes with us.
    """

    def __init__(self, job: str, name: str) -> None:
        self._next = FIRST + crc32(f"{job}/{name}".encode()) % (LAST - FIRST)
        self._held: list[socket.socket] = []

    def pick(self) -> int:
        """A port nobody listens on. Raises NoPort."""
        for _ in range(LAST - FIRST):
            port = self._next
            self._next = FIRST + (port + 1 - FIRST) % (LAST - FIRST)
            if self._hold(port):
                return port
        raise NoPort(f"no free port between {FIRST} and {LAST}")

    def take(self, port: int) -> int:
        """This port. Raises NoPort when somebody has it; connections that ended there a moment ago do not matter."""
        if not self._hold(port, reuse=True):
            raise NoPort(f"port {port} is taken")
        return port

    def _hold(self, port: int, *, reuse: bool = False) -> bool:
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            mark.bind(f"\0atropos-port-{port}")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
                probe.bind(("", port))
        except OSError:
            mark.close()
            return False
        self._held.append(mark)
        return True

    def close(self) -> None:
        for mark in self._held:
            mark.close()
        self._held.clear()
