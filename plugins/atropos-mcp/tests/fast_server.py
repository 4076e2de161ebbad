"""A server made with the package mcp, 1.x or 2.x: python fast_server.py [PORT]. Without a port it speaks stdio."""

from __future__ import annotations

import os
import sys
from typing import Any

port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
try:
    from mcp.server.fastmcp import FastMCP  # type: ignore[import-not-found,unused-ignore]

    server: Any = FastMCP("shop", host="127.0.0.1", port=port)
    where: dict[str, Any] = {}
except ImportError:
    from mcp.server import MCPServer

    server = MCPServer("shop")
    where = {"host": "127.0.0.1", "port": port}

kept: list[str] = []


@server.tool()
def price(product: str, pieces: int = 1) -> int:
    """Look up the price of some pieces, in euros."""
    return {"lamp": 30, "chair": 80}[product] * pieces


@server.tool()
def keep(text: str) -> list[str]:
    """Keep a text; all that were kept."""
    kept.append(text)
    return kept


@server.tool()
def variables() -> str:
    """The names of the variables of this process."""
    return " ".join(sorted(os.environ))


if port:
    server.run("streamable-http", **where)
else:
    server.run()
