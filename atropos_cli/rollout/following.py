"""The weights of a trainer in another process: it leaves them in a folder, the backend of a run takes them from there.

The folder holds weights.json, {"version": 3, "folder": "step-3", "pushed": false}, written last. `folder` is below it,
or null while the weights are still those that the trainer began with. `pushed`: the trainer has given them to its
inference servers itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from atropos_cli.errors import AtroposError, BackendError
from atropos_cli.ports.backend import InferenceBackend

MARKER = "weights.json"
_LOOK_EVERY = 0.2


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
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if type(version) is not int or version < 0:
        return None
    if name is not None and (not isinstance(name, str) or Path(name).name != name or name == ".."):
        return None
    return Weights(version, None if name is None else place / name, data.get("pushed") is True)


class Follower:
    """ready: has the backend the weights that were the newest when it first looked?"""

    def __init__(self, backend: InferenceBackend, on_event: Callable[[str, str], None]) -> None:
        self.ready = False
        self.error: AtroposError | None = None
        self.still = asyncio.Lock()
        """While another holds it, the backend keeps its weights."""
        self._backend, self._on_event = backend, on_event

    async def follow(self, place: Callable[[], str | None], changed: Callable[[], object]) -> None:
        """Until it is cancelled. place: the trainer's folder, None while it is not known."""
        while (folder := place()) is None:  # noqa: ASYNC110 - a thread of its own finds it out
            await asyncio.sleep(_LOOK_EVERY)
        try:
            while True:
                async with self.still:
                    taken = await self._look(Path(folder) if folder else None)
                if taken and not self.ready:
                    self.ready = True
                    changed()
                await asyncio.sleep(_LOOK_EVERY)
        except AtroposError as error:
            self.error = error
            changed()

    async def _look(self, place: Path | None) -> bool:
        """False: the newest weights were not there, and are to be looked for again."""
        found = None if place is None or not place.is_absolute() else await asyncio.to_thread(read_marker, place)
        backend = self._backend
        if found is None or found.version == backend.weights_version:
            return True
        if found.folder is not None:
            if not backend.capabilities.weight_sync:
                if not self.ready:
                    text = f"backend {backend.name!r} cannot take the trainer's weights: it samples with its own"
                    self._on_event("weights", text)
                return True
            try:
                await backend.update_weights(str(found.folder), version=found.version, loaded=found.pushed)
            except BackendError:
                # Newer ones came, and these are gone; or they are being replaced, and the next look finds which.
                if place is not None and (read_marker(place) != found or not found.folder.is_dir()):
                    return False
                raise
        backend.weights_version = found.version
        return True
