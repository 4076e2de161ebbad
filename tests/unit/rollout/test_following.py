"""The weights that a trainer leaves in a folder, and the backend that takes them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.errors import BackendError
from atropos_cli.ports.backend import Capabilities, GenerateRequest, Generation, InferenceBackend
from atropos_cli.rollout.following import MARKER, Follower, Weights, read_marker


class Sampler(InferenceBackend):
    """Notes the weights it is given."""

    name = "sampler"

    def __init__(self, *, able: bool = True) -> None:
        super().__init__(None)
        self.capabilities = Capabilities(weight_sync=able)
        self.given: list[tuple[str, int, bool]] = []
        self.wrong: Any = None

    async def generate(self, request: GenerateRequest) -> Generation:
        return Generation(completions=())

    async def update_weights(self, source: str | None, *, version: int, loaded: bool = False) -> None:
        if self.wrong is not None:
            wrong, self.wrong = self.wrong, None
            wrong()
        self.given.append((str(source), version, loaded))


def leave(place: Path, version: int, folder: str | None, *, pushed: bool = False) -> None:
    (place / MARKER).write_text(json.dumps({"version": version, "folder": folder, "pushed": pushed}))


def follow(backend: Sampler, folder: str, said: list[str], *until: int) -> Follower:
    """Follow until the backend has each version in turn; what comes next is left for it then."""

    async def run() -> Follower:
        follower = Follower(backend, lambda kind, text: said.append(text))
        changed = asyncio.Event()
        task = asyncio.create_task(follower.follow(lambda: folder, changed.set))
        await asyncio.wait_for(changed.wait(), 20)
        for version in until:
            while backend.weights_version != version and follower.error is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            leave(Path(folder), version + 1, f"step-{version + 1}", pushed=True)
        task.cancel()
        return follower

    return asyncio.run(run())


def test_weights_are_taken_as_they_come(tmp_path: Path) -> None:
    leave(tmp_path, 0, None)
    backend = Sampler()
    follower = follow(backend, str(tmp_path), [], 0, 1)
    assert follower.ready
    assert backend.given == [(str(tmp_path / "step-1"), 1, True)]


def test_weights_that_were_removed_meanwhile(tmp_path: Path) -> None:
    leave(tmp_path, 3, "step-3")
    backend = Sampler()

    def gone() -> None:
        leave(tmp_path, 4, "step-4")
        raise BackendError("step-3 is gone")

    backend.wrong = gone
    assert follow(backend, str(tmp_path), [], 4).error is None
    assert backend.given == [(str(tmp_path / "step-4"), 4, False)]


def test_weights_that_are_being_replaced_are_waited_for(tmp_path: Path) -> None:
    """As by a trainer that is resumed: its marker names a folder that is not there, and is there again later."""
    leave(tmp_path, 3, "step-3")
    backend = Sampler()

    def absent() -> None:
        backend.wrong = absent_again
        raise BackendError("it is not there")

    def absent_again() -> None:
        assert not follower_ready(), "the weights are not there yet"
        raise BackendError("it is not there")

    looked: list[Follower] = []

    def follower_ready() -> bool:
        return looked[0].ready

    async def run() -> None:
        follower = Follower(backend, lambda kind, text: None)
        looked.append(follower)
        changed = asyncio.Event()
        task = asyncio.create_task(follower.follow(lambda: str(tmp_path), changed.set))
        await asyncio.wait_for(changed.wait(), 20)
        task.cancel()
        assert (follower.ready, follower.error) == (True, None)

    backend.wrong = absent
    asyncio.run(run())
    assert backend.given == [(str(tmp_path / "step-3"), 3, False)]
    assert backend.weights_version == 3


def test_weights_that_cannot_be_taken_end_the_run(tmp_path: Path) -> None:
    leave(tmp_path, 3, "step-3")
    (tmp_path / "step-3").mkdir()
    backend = Sampler()

    def wrong() -> None:
        raise BackendError("of another model")

    backend.wrong = wrong
    assert "of another model" in str(follow(backend, str(tmp_path), []).error)


def test_a_backend_that_cannot_change_samples_with_its_own(tmp_path: Path) -> None:
    leave(tmp_path, 3, "step-3")
    backend, said = Sampler(able=False), list[str]()
    assert follow(backend, str(tmp_path), said).ready
    assert (backend.given, backend.weights_version) == ([], None)
    assert "cannot take the trainer's weights" in said[0]


@pytest.mark.parametrize("folder", ["", "relative", "/nowhere/at/all"])
def test_a_trainer_that_leaves_no_weights(folder: str) -> None:
    backend = Sampler()
    assert follow(backend, folder, []).ready
    assert backend.weights_version is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 1}',
        '{"version": true, "folder": "a"}',
        '{"version": -1, "folder": "a"}',
        '{"version": 1, "folder": "../a"}',
        '{"version": 1, "folder": ".."}',
        '{"version": 1, "folder": "/etc"}',
        '{"version": 1, "folder": 7}',
    ],
)
def test_a_marker_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER).write_text(text)
    assert read_marker(tmp_path) is None


def test_a_marker(tmp_path: Path) -> None:
    leave(tmp_path, 2, "step-2")
    assert read_marker(tmp_path) == Weights(2, tmp_path / "step-2", pushed=False)
