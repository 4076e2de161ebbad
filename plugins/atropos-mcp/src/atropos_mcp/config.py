"""The options of an MCP server, and what its target may be."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from atropos_cli.sdk import ConfigError, Field
from atropos_cli.sdk.tools import ToolsConfig

ACCESS = frozenset({"api_key_env", "start_timeout", "workers"})
"""How the server is reached, not its answers: left out of a plan's digest."""
_URL = re.compile(r"https?://", re.IGNORECASE)


class McpConfig(ToolsConfig):
    """Options of `--tools mcp:TARGET`."""

    shared: bool = Field(
        default=False, description="One server for all episodes, instead of one for each episode that calls a tool."
    )
    workers: int = Field(default=8, ge=1, description="Calls and starts of servers at once; others wait.")
    start_timeout: float = Field(default=60.0, gt=0, description="Seconds that a server may take to start.")
    env: tuple[str, ...] = Field(
        default=(), description="Environment variable that the server's process sees, repeated; default: PATH and LANG."
    )
    api_key_env: str | None = Field(
        default=None, description="Environment variable with the key for a URL, sent as a bearer token."
    )


def command_of(target: str) -> list[str] | None:
    """The words of a command, split as a shell splits them; None for a URL. Raises ConfigError."""
    if _URL.match(target):
        parts = urlsplit(target)
        if "@" in parts.netloc:
            raise ConfigError(
                "a user name or password has no place in a URL", hint="--tool.mcp.api-key-env VARIABLE, with the key"
            )
        if not parts.hostname:
            raise ConfigError(f"{target!r} names no host", hint="--tools mcp:http://127.0.0.1:8000/mcp")
        return None
    if re.match(r"[a-z]+://", target, re.IGNORECASE):
        raise ConfigError(f"{target!r} is not a URL of http or https", hint="--tools mcp:http://127.0.0.1:8000/mcp")
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise ConfigError(f"the command {target!r} cannot be split: {error}", hint="close the quotes") from None
    if not words or not words[0]:
        raise ConfigError("mcp: needs a command or a URL", hint='--tools "mcp:python server.py"')
    return words


def from_here(command: list[str]) -> list[str]:
    """The command for another folder: words that name existing files here, the program by a path only, are absolute."""
    first, *rest = command
    found = [str(Path(word).absolute()) if word and Path(word).exists() else word for word in rest]
    return [str(Path(first).absolute()) if "/" in first else first, *found]
