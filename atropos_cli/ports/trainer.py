"""Trainers: what turns scored groups or data sets into weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.plan import Plan
from atropos_cli.ports.backend import NoOptions


class TrainResult(Frozen):
    """Where the weights are and how training went."""

    output: str
    steps: int
    metrics: dict[str, float] = Field(default_factory=dict)


class Trainer(ABC):
    """Trains on groups, stored or live; `report` takes a dict of named numbers at each step."""

    name: ClassVar[str]
    Config: ClassVar[type[BaseModel]] = NoOptions

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def train(self, plan: Plan, groups: Iterable[ScoredGroup], report: Callable[[JsonDict], None]) -> TrainResult:
        """Run to the end or until interrupted; must leave a resumable state."""
