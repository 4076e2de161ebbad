"""Trackers: where a run is reported beside its own folder (Weights & Biases, TensorBoard, ...)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from atropos_cli.domain.base import JsonDict

Values = Mapping[str, float | None]

SAMPLE_COLUMNS = ("prompt", "completion", "extracted", "expected", "reward", "correct")


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """What a tracker is told of the run when it is opened. All texts are free of known secrets.

    command: which command runs. folder: where files of the tracker go, in a folder of the tracker's own name.
    config: the plan, with its digest. axis: what the steps of metrics() count. resume: the run was begun before, and
    known is what `keep` was last given: the id at the service, say. offline: nothing may be sent over the network.
    earlier_samples: the rows that earlier sessions of the run gave to samples(). say: tell the user something.
    """

    command: Literal["gen", "eval", "train"]
    folder: Path
    name: str
    config: JsonDict
    axis: str
    keep: Callable[[JsonDict], None]
    say: Callable[[str], None]
    project: str | None = None
    entity: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    resume: bool = False
    offline: bool = False
    known: JsonDict = field(default_factory=dict)
    earlier_samples: Callable[[], list[JsonDict]] = list


class Tracker(ABC):
    """One service. It lives in a thread of its own, and its calls come one after the other.

    Any of them may raise or hang: the run says so once, goes on, and calls this tracker no more.
    """

    name: ClassVar[str]

    @abstractmethod
    def __init__(self, run: TrackedRun) -> None:
        """Open it. A missing package may raise its ModuleNotFoundError: the user is told how to install it."""

    @abstractmethod
    def metrics(self, step: int, values: Values) -> None:
        """Numbers of one step. Steps grow, but a run that was killed may come to some of them again."""

    def videos(self, step: int, rows: Sequence[JsonDict]) -> None:
        """Videos of episodes: path of the file, suite, task, return, steps, success (None: not known)."""

    def samples(self, step: int, rows: Sequence[JsonDict]) -> None:
        """Some rollouts, with the keys SAMPLE_COLUMNS, and `suite` for those of an evaluation."""

    def summary(self, step: int, values: Mapping[str, float | str]) -> None:
        """What came out in the end."""

    @abstractmethod
    def finish(self, code: int) -> None:
        """The run ended with this exit code. The last call, also of a run that failed."""
