"""The weights that a trainer leaves in a folder, and the backend that takes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
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


def looks(
    backend: Sampler, said: list[str], *before: Callable[[], object], place: Callable[[], Path], seconds: float = 0.0
) -> Follower:
    """A follower that has looked once after each of these; `seconds` pass from one to the next."""
    left, passed = list(before), 0.0

    async def run() -> Follower:
        over = asyncio.Event()

        def where() -> str | None:
            nonlocal passed
            if not left:
                over.set()
                return None
            passed += seconds
            left.pop(0)()
            return str(place())

        follower = Follower(backend, lambda kind, text: said.append(text), lambda: passed)
        tasks = [asyncio.create_task(follower.follow(where, lambda: None)), asyncio.create_task(over.wait())]
        await asyncio.wait(tasks, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        return follower

    return asyncio.run(run())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_cli.rollout.following._LOOK_EVERY", 0.0)


def nothing() -> None:
    """Only time passes."""


@pytest.mark.usefixtures("quick")
def test_a_backend_that_cannot_change_says_so_also_after_the_first_weights(tmp_path: Path) -> None:
    """Those are what it has; that it does not take the next ones would be seen nowhere."""
    backend, said = Sampler(able=False), list[str]()
    steps = [lambda: leave(tmp_path, 0, None), lambda: leave(tmp_path, 1, "step-1"), nothing]
    looks(backend, said, *steps, place=lambda: tmp_path)
    assert (backend.given, backend.weights_version) == ([], 0)
    assert ["cannot take the trainer's weights" in text for text in said] == [True]


@pytest.mark.usefixtures("quick")
def test_the_trainer_that_registered_last_is_followed(tmp_path: Path) -> None:
    """Also where its weights have the version of those at hand, or have had no step: they are other ones."""
    backend, places = Sampler(), [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for place, version in zip(places, (5, 5, 0), strict=True):
        place.mkdir()
        leave(place, version, f"step-{version}")
    at = iter(places)
    looks(backend, [], nothing, nothing, nothing, place=lambda: next(at))
    assert [given[0] for given in backend.given] == [
        str(place / name) for place, name in zip(places, ("step-5", "step-5", "step-0"), strict=True)
    ]
    assert backend.weights_version == 0


@pytest.mark.usefixtures("quick")
def test_first_weights_that_the_backend_no_longer_has_are_not_taken_for_its_own(tmp_path: Path) -> None:
    steps = [lambda: leave(tmp_path, 5, "step-5"), lambda: leave(tmp_path, 0, None)]
    backend = Sampler()
    error = looks(backend, [], *steps, place=lambda: tmp_path).error
    assert "began again with its first weights" in str(error)
    assert error is not None
    assert "--resume" in str(error.hint)
    assert backend.weights_version == 5


@pytest.mark.usefixtures("quick")
def test_an_error_that_no_backend_should_raise_ends_the_run(tmp_path: Path) -> None:
    leave(tmp_path, 1, "step-1")
    backend = Sampler()
    backend.wrong = lambda: 1 // 0
    error = looks(backend, [], nothing, nothing, place=lambda: tmp_path).error
    assert "cannot be followed: ZeroDivisionError" in str(error)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("begun", [False, True])
def test_weights_that_do_not_come_are_said_now_and_then(tmp_path: Path, begun: bool) -> None:
    """step-4 is named and not there: after a minute, and after twice as long each time; all is well once it is."""
    backend, said, minute = Sampler(), list[str](), [nothing] * 4

    def gone() -> None:
        backend.wrong = gone
        raise BackendError("it is not there")

    def missing() -> None:
        leave(tmp_path, 4, "step-4")
        backend.wrong = gone

    def there() -> None:
        backend.wrong = None

    first = [lambda: leave(tmp_path, 3, "step-3"), missing] if begun else [missing]
    follower = looks(backend, said, *first, *minute * 9, there, *minute * 9, place=lambda: tmp_path, seconds=15.0)
    assert [text.partition("not there for ")[2].partition(":")[0] for text in said] == [
        "60 s",
        "120 s",
        "240 s",
        "480 s",
    ]
    state = "the run samples with those of step 3" if begun else "no group starts until it is"
    assert all(f"{tmp_path / MARKER} names step-4, " in text and state in text for text in said)
    assert (follower.ready, backend.weights_version) == (True, 4)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("there", "times"), [(True, ["60 s"]), (False, ["60 s", "120 s", "240 s"])])
def test_a_trainer_without_weights_is_said(tmp_path: Path, there: bool, times: list[str]) -> None:
    """A folder that is not there is more likely one that this machine does not see."""
    said, place = list[str](), tmp_path / "weights"
    if there:
        place.mkdir()
    follower = looks(Sampler(), said, *[nothing] * 25, place=lambda: place, seconds=15.0)
    assert [text.partition(" for ")[2].partition(":")[0] for text in said] == times
    assert all(str(place) in text and "samples with the weights that it has" in text for text in said)
    assert follower.ready


@pytest.mark.usefixtures("quick")
def test_nothing_is_said_of_a_trainer_that_has_ended(tmp_path: Path) -> None:
    said, marker = list[str](), tmp_path / MARKER
    steps = [lambda: leave(tmp_path, 5, "step-5"), marker.unlink]
    looks(Sampler(), said, *steps, *[nothing] * 25, place=lambda: tmp_path, seconds=60.0)
    assert said == []


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
        '{"version": 1, "folder": ""}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_marker_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER).write_text(text)
    assert read_marker(tmp_path) is None


def test_a_marker(tmp_path: Path) -> None:
    leave(tmp_path, 2, "step-2")
    assert read_marker(tmp_path) == Weights(2, tmp_path / "step-2", pushed=False)
