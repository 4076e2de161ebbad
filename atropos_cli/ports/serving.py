"""Servers beside the command of a job: what is asked of the plugin that knows the engines, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from atropos_cli.domain.job import Component

Engine = Literal["sglang", "vllm"]
ENGINES: tuple[Engine, ...] = ("sglang", "vllm")
TINKER = "skyrl"
"""The engine of a server that speaks the Tinker API, and samples and trains at the same time."""
TRAJECTORIES = "trajectories"
"""`atropos serve`, which serves no model."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Servers to start. extra: options for the server, verbatim. python: that has the engine."""

    engine: Literal["sglang", "vllm", "trajectories"]
    model: str | None = None
    tp: int | None = None
    dp: int | None = None
    python: str | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Served:
    """components: one per process group. heads: names of those that answer requests. notes: for the user."""

    components: tuple[Component, ...]
    heads: tuple[str, ...]
    notes: tuple[str, ...] = ()
