"""The record of a server that was started by a launch command."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["starting", "ready", "failed", "stopped", "gone"]


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """server.json. urls: base URLs, ending in /v1. pid: of the supervisor; code: how it ended.

    capabilities: what the servers were found to give, once they are ready. key_env: the variable with the key that
    they want from clients.
    """

    name: str
    engine: str
    model: str
    served_name: str
    launcher: str = "local"
    host: str = ""
    pid: int = 0
    state: State = "starting"
    urls: tuple[str, ...] = ()
    capabilities: dict[str, Any] = field(default_factory=dict)
    started: float = 0.0
    ready: float | None = None
    code: int | None = None
    reason: str | None = None
    job_id: str | None = None
    key_env: str | None = None

    def replace(self, **changes: Any) -> ServerRecord:
        return ServerRecord(**{**asdict(self), **changes})
