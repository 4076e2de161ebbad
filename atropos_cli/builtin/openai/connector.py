"""aiohttp's connections, and what it does not do itself: note which requests reuse one, distrust stray bytes."""

from __future__ import annotations

import socket
from contextvars import ContextVar
from typing import TYPE_CHECKING

from aiohttp import TCPConnector

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace

reused: ContextVar[bool] = ContextVar("reused", default=False)
"""Did the request of this task go over a kept connection?"""


class Connector(TCPConnector):
    """Sets `reused`, and drops a kept connection on which unrequested bytes arrived."""

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            # aiohttp would give the stray bytes to the next request as its answer.
            if connection.protocol is not None and not connection.protocol.should_close:
                reused.set(True)
                return connection
            connection.close()
        return None


def open_socket(address: AddrInfoType) -> socket.socket:
    """A socket on which the kernel asks a silent peer after a minute: a host that lost power is noticed early."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):  # Linux
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock
