"""Run by a Python with OpenEnv: a server of theirs with an environment of the tests. KIND PORT SESSIONS

numbers: says the number of its seed, and rewards it as an answer. tools: adds.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class Answer(Action):
    """The number that was said."""

    answer: str


class Said(Observation):
    """The number, in words for a model."""

    hint: str = ""


class Numbers(Environment):
    """One turn."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Said:
        self.seed = seed
        return Said(hint=f"the number is {seed}", reward=None, done=False)

    def step(self, action: Answer, timeout_s: float | None = None, **more: Any) -> Said:
        return Said(hint="", reward=float(action.answer == str(self.seed)), done=True)

    @property
    def state(self) -> State:
        return State(step_count=0)


class Adding(MCPEnvironment):
    """A tool."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        mcp = FastMCP("adding")

        @mcp.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        super().__init__(mcp)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Observation:
        return Observation(reward=None, done=False, metadata={"hint": "add"})

    def _step_impl(self, action: Any, timeout_s: float | None = None, **more: Any) -> Observation:
        return Observation(reward=None, done=False)

    @property
    def state(self) -> State:
        return State(step_count=0)


KINDS: dict[str, tuple[Any, Any, Any]] = {
    "numbers": (Numbers, Answer, Said),
    "tools": (Adding, CallToolAction, CallToolObservation),
}
kind, port, sessions = sys.argv[1:]
app = create_app(*KINDS[kind], env_name=kind, max_concurrent_envs=int(sessions))
uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
