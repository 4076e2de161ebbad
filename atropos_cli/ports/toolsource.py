"""Sources of tools: what gives any environment tools that it does not have itself, for --tools NAME:TARGET."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from atropos_cli.domain.base import JsonDict
from atropos_cli.ports.environment import Config


class ToolsConfig(Config):
    """Options of every source of tools."""

    only: tuple[str, ...] = Field(default=(), description="Tool to offer, repeated; default: all.")
    max_turns: int = Field(default=10, ge=1, description="Replies with calls of these tools, in an episode.")
    timeout: float = Field(default=30.0, gt=0, description="Seconds that a call may take.")
    output: int = Field(default=8000, ge=1, description="Most characters of a result.")
    tools_in: Literal["template", "prompt"] = Field(
        default="template",
        description="Where the model sees the tools: in the server's chat template, or in the system message.",
    )


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered, as the model reads it. error: the tool says that the call has failed."""

    text: str
    error: bool = False


class ToolSession(ABC):
    """The tools of one episode. Its calls come one after the other."""

    @abstractmethod
    async def call(self, name: str, arguments: JsonDict) -> ToolResult:
        """Call a tool, in the time that the options allow; waiting for a turn does not count.

        A TimeoutError becomes a message for the model. Anything else that it raises fails the rollout.
        """

    async def close(self) -> None:
        """Free what the episode holds."""
        return None


class ToolSource(ABC):
    """Where tools come from. One object serves a run; open() comes first.

    Class attributes: `name` (as in --tools NAME:TARGET), `Config` (a ToolsConfig), and `access`, names of options that
    do not decide the results; they are left out of a plan's digest.
    """

    name: ClassVar[str]
    Config: ClassVar[type[BaseModel]] = ToolsConfig
    access: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, target: str, config: Any) -> None:
        """Raises ConfigError for a target that cannot be one."""
        self.target = target
        self.config = config

    @abstractmethod
    async def open(self, *, workers: int) -> Sequence[JsonDict]:
        """The tools, as OpenAI function schemas. workers: calls that come at the same time."""

    @abstractmethod
    def session(self) -> ToolSession:
        """For one episode. It holds nothing before the first call."""

    async def close(self) -> None:
        """End what open() and the sessions have started."""
        return None
