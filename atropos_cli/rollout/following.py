"""The weights of a trainer in another process: it leaves them in a folder, the backend of a run takes them from there.

The folder holds weights.json, {"version": 3, "folder": "step-3", "pushed": false}, written last. `folder` is below it,
or null while the weights are still those that all began with. `pushed`: the trainer has given them to its inference
servers itself.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from atropos_cli.errors import AtroposError, BackendError, FatalBackendError
from atropos_cli.ports.backend import InferenceBackend

MARKER = "weights.json"
_LOOK_EVERY = 0.2
_TELL_AFTER, _TELL_MOST = 60.0, 3600.0
"""Seconds until it is said that weights are missing; then twice as many each time, up to the second."""


@dataclass(frozen=True)
class Weights:
    """What a marker says."""

    version: int
    folder: Path | None
    pushed: bool


def read_marker(place: Path) -> Weights | None:
    """The newest weights in a trainer's folder; None where there is no marker of ours."""
    try:
        data = json.loads((place / MARKER).read_bytes())
        version, name = data["version"], data["folder"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if type(version) is not int or version < 0:
        return None
    if name is not None and (not isinstance(name, str) or not name or Path(name).name != name or name == ".."):
        return None
    return Weights(version, None if name is None else place / name, data.get("pushed") is True)


class Follower:
    """ready: has the backend the weights that were the newest when it first looked?"""

    def __init__(
        self,
        backend: InferenceBackend,
        on_event: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ready = False
        self.error: AtroposError | None = None
        self.still = asyncio.Lock()
        """While another holds it, the backend keeps its weights."""
        self._backend, self._on_event = backend, on_event
        self._taken: Weights | None = None
        self._from: Path | None = None
        self._told_unable = False
        self._missing = _Missing(on_event, clock)

    async def follow(self, place: Callable[[], str | None], changed: Callable[[], object]) -> None:
        """Until it is cancelled. place: the folder of the trainer that is registered now, None before there is one."""
        try:
            while True:
                if (folder := place()) is not None:
                    async with self.still:
                        taken = await self._look(Path(folder) if folder else None)
                    if taken and not self.ready:
                        self.ready = True
                        changed()
                await asyncio.sleep(_LOOK_EVERY)
        except AtroposError as error:
            self.error = error
            changed()
        except Exception as error:  # noqa: BLE001 - a run that samples with old weights must not look well
            text = f"the trainer's weights cannot be followed: {type(error).__name__}: {error}"
            self.error = AtroposError(text, hint="--resume continues the run; --debug shows more")
            changed()

    async def _look(self, place: Path | None) -> bool:
        """False: the newest weights were not there, and are to be looked for again."""
        if place is None or not place.is_absolute():
            return True
        found = await asyncio.to_thread(read_marker, place)
        if found is None:
            if self._from != place:  # else the trainer has ended
                self._missing.marker(place, there=await asyncio.to_thread(place.is_dir))
            return True
        if found != self._taken and not await self._take(found):
            if await asyncio.to_thread(read_marker, place) == found:
                self._missing.weights(place, found, self._backend.weights_version if self.ready else None)
            return False
        self._from = place
        self._missing.found()
        return True

    async def _take(self, found: Weights) -> bool:
        """False: the folder was not there, or went meanwhile."""
        backend, earlier = self._backend, self._taken
        if found.folder is not None:
            if not backend.capabilities.weight_sync:
                if not self._told_unable:
                    self._told_unable = True
                    text = f"backend {backend.name!r} cannot take the trainer's weights: it samples with its own"
                    self._on_event("weights", text)
                return True
            try:
                await backend.update_weights(str(found.folder), version=found.version, loaded=found.pushed)
            except BackendError:
                # Newer ones came, and these are gone; or they are being replaced, and the next look finds which.
                if await asyncio.to_thread(_is_gone, found):
                    return False
                raise
        elif earlier is not None and earlier.folder is not None and not found.pushed:
            raise FatalBackendError(
                f"the trainer began again with its first weights, and this run has those of {earlier.folder}",
                hint="--resume continues the run with the first weights",
            )
        self._taken, backend.weights_version = found, found.version
        return True


def _is_gone(weights: Weights) -> bool:
    assert weights.folder is not None
    return not weights.folder.is_dir() or read_marker(weights.folder.parent) != weights


class _Missing:
    """Says that weights are missing: after a while, then less and less often, until they are there."""

    def __init__(self, on_event: Callable[[str, str], None], clock: Callable[[], float]) -> None:
        self._on_event, self._clock = on_event, clock
        self._what: object = None
        self._began = self._next = 0.0

    def found(self) -> None:
        self._what = None

    def marker(self, place: Path, *, there: bool) -> None:
        """there: is the folder? Of trainers that leave no weights there, it is said once."""
        if (waited := self._due((place, there))) is None:
            return
        what = f"the trainer's folder {place} " + (f"holds no readable {MARKER}" if there else "is not there")
        self._on_event(
            "weights",
            f"{what} for {waited:.0f} s: the run samples with the weights that it has. If the trainer leaves new ones "
            "there, this machine must see the same file system",
        )
        if there:
            self._next = float("inf")

    def weights(self, place: Path, missing: Weights, version: int | None) -> None:
        """version: of the weights that the backend has; None: the run has not started."""
        assert missing.folder is not None
        if (waited := self._due(missing)) is None:
            return
        meanwhile = (
            "no group starts until it is" if version is None else f"the run samples with those of step {version}"
        )
        self._on_event(
            "weights",
            f"{place / MARKER} names {missing.folder.name}, which is not there for {waited:.0f} s: {meanwhile}. "
            "Is the trainer alive (its --resume writes the folder again), and does this machine see its file system?",
        )

    def _due(self, what: object) -> float | None:
        """The seconds that it has been missing, if it is time to say so."""
        now = self._clock()
        if what != self._what:
            self._what, self._began, self._next = what, now, _TELL_AFTER
        if (waited := now - self._began) < self._next:
            return None
        self._next = waited + min(waited, _TELL_MOST)
        return waited
