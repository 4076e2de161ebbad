"""The trainer's side of the episodes: starts a process of our engine, and plays episodes with it.

    engine = Engine.of(folder)
    episode = engine.begin({"plan": "train", "place": 0, "task": {...}}, step=1)
    said = episode.next.result()               # {"ask": {"messages", "tools", "sampling"}}, or how it ended
    said = episode.reply(text="42").result()   # the next one

It is copied into the run, and runs under the interpreter of the trainer's package: standard library only. One process
of the engine serves all episodes of a worker of the trainer. Messages are JSON objects, one a line. The last one of an
episode is {"done": {...}}, {"failed": {"stage", "type", "message"}} for a rollout without a reward, or {"fatal": text}
when no episode can work. `Play` is an episode from its beginning to its training sequences; how the trainer makes and
samples tokens is for subclasses to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from typing import IO, Any, ClassVar

SPEC = "engine.json"
FATAL = "fatal.json"
HOST = "atropos_cli.distributed.host"
TRIES = 3
_LAST = 600
_NOT_OURS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NNODES", "NODE_RANK", "PYTHONHOME")


class EngineLost(RuntimeError):
    """The engine's process ended. Its episodes may be played again."""


class EpisodeFailed(RuntimeError):
    """A rollout without a reward, after some tries."""


class Fatal(RuntimeError):
    """No episode can work: the training should end."""


class Episode:
    """One rollout. next: what the engine says next."""

    def __init__(self, process: Process, number: int) -> None:
        self._process = process
        self.number = number
        self.next: Future[dict[str, Any]] = Future()

    def reply(self, **said: Any) -> Future[dict[str, Any]]:
        """Answer the request: text, finish_reason, and ids, logprobs and prompt_ids where they are known.

        overflow=True instead: the context is full, which ends the episode.
        """
        self.next = Future()
        self._process.send({"id": self.number, "reply": said}, self.next)
        return self.next

    def cancel(self) -> None:
        """Nothing more is wanted of it."""
        self._process.forget(self.number)


class Process:
    """One process of the engine."""

    def __init__(self, folder: Path) -> None:
        spec = json.loads((folder / SPEC).read_text(encoding="utf-8"))
        logs = folder / "logs"
        logs.mkdir(exist_ok=True)
        self._log = logs / f"{os.uname().nodename}-{os.getpid()}.log"
        env = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
        env.pop("PYTHONPATH", None)
        if spec.get("pythonpath"):
            env["PYTHONPATH"] = spec["pythonpath"]
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(  # noqa: S603 - our own program
                [spec["python"], "-P", "-m", HOST, str(folder)],
                cwd=spec["cwd"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self._lock = threading.Lock()
        # Apart: while a full pipe holds up a writer, the reader must go on, or neither side ever would.
        self._writing = threading.Lock()
        self._episodes: dict[int, Episode] = {}
        self.lost = False
        threading.Thread(target=self._read, args=(self._popen.stdout,), name="atropos-engine", daemon=True).start()

    def begin(self, number: int, item: Any, step: int) -> Episode:
        episode = Episode(self, number)
        with self._lock:
            self._episodes[number] = episode
        self.send({"id": number, "start": item, "step": step}, episode.next)
        return episode

    def send(self, message: dict[str, Any], waiting: Future[dict[str, Any]] | None = None) -> None:
        data = json.dumps(message).encode() + b"\n"
        try:
            with self._writing:
                if self.lost or self._popen.stdin is None:
                    raise OSError
                self._popen.stdin.write(data)
                self._popen.stdin.flush()
        except (OSError, ValueError):
            if waiting is not None:
                with contextlib.suppress(InvalidStateError):
                    waiting.set_exception(self._loss())

    def forget(self, number: int) -> None:
        with self._lock:
            known = self._episodes.pop(number, None)
        if known is not None:
            self.send({"id": number, "cancel": True})

    def close(self) -> None:
        """The engine ends when nothing can come any more."""
        with contextlib.suppress(OSError, ValueError):
            if self._popen.stdin is not None:
                self._popen.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(10)
        self._popen.kill()
        self._popen.wait()

    def _read(self, stream: IO[bytes]) -> None:
        for line in stream:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            last = "ask" not in said
            with self._lock:
                number = said.get("id")
                episode = self._episodes.pop(number, None) if last else self._episodes.get(number)
            if episode is not None:
                with contextlib.suppress(InvalidStateError):  # given up meanwhile
                    episode.next.set_result(said)
        with self._lock:
            self.lost = True
            left, self._episodes = list(self._episodes.values()), {}
        self._popen.wait()
        for episode in left:
            with contextlib.suppress(InvalidStateError):
                episode.next.set_exception(self._loss())

    def _loss(self) -> EngineLost:
        try:
            end = self._log.read_bytes()[-_LAST:].decode("utf-8", "replace").strip()
        except OSError:
            end = ""
        return EngineLost(f"the engine's process ended ({self._popen.poll()}); see {self._log}: {end}")


class Engine:
    """The engine of this process of the trainer. A lost one is started again."""

    _known: ClassVar[dict[tuple[str, int], Engine]] = {}
    _making = threading.Lock()

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._numbers = itertools.count()
        self._process: Process | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, folder: str | Path) -> Engine:
        """The one of this process: a fork has its own."""
        key = (str(folder), os.getpid())
        with cls._making:
            if key not in cls._known:
                cls._known[key] = cls(folder)
            return cls._known[key]

    def begin(self, item: Any, *, step: int) -> Episode:
        with self._lock:
            if self._process is None or self._process.lost:
                self._process = Process(self.folder)
            return self._process.begin(next(self._numbers), item, step)

    def close(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.close()
                self._process = None


def failed(said: dict[str, Any]) -> str:
    """A failure as a line."""
    what = said["failed"]
    return f"{what.get('stage')}: {what.get('type')}: {what.get('message')}"


def end_all(folder: str | Path, text: str) -> None:
    """Have the run end with this reason: no episode can work."""
    path = Path(folder) / FATAL
    writing = path.with_name(f".{os.getpid()}-{path.name}")
    writing.write_text(json.dumps({"message": text}), encoding="utf-8")
    writing.replace(path)


class Sequence:
    """One training sequence while it grows. ids: all tokens; mask and logprobs: of those behind the prompt."""

    def __init__(self, prompt: list[int]) -> None:
        self.ids = prompt
        self.mask: list[int] = []
        self.logprobs: list[float] | None = None

    @property
    def prompt(self) -> list[int]:
        return self.ids[: len(self.ids) - len(self.mask)]

    @property
    def response(self) -> list[int]:
        return self.ids[len(self.ids) - len(self.mask) :]

    def sampled(self, ids: list[int], logprobs: list[float] | None) -> None:
        """Take up tokens of the model."""
        if logprobs is not None and self.logprobs is None:
            self.logprobs = [0.0] * len(self.mask)
        self._add(ids, 1, logprobs)

    def given(self, ids: list[int]) -> None:
        """Take up tokens of the environment: they are not trained on."""
        self._add(ids, 0, None)

    def _add(self, ids: list[int], mask: int, logprobs: list[float] | None) -> None:
        self.ids = [*self.ids, *ids]
        self.mask += [mask] * len(ids)
        if self.logprobs is not None:
            self.logprobs += [0.0] * len(ids) if logprobs is None else logprobs


class Play(ABC):
    """One episode with the trainer's model. Lengths: of the first request, and of all tokens behind it."""

    def __init__(self, engine: Engine, prompt_length: int, response_length: int) -> None:
        self._engine = engine
        self._prompt_length, self._response_length = prompt_length, response_length
        self._done: list[Any] = []
        self._now: Any = None
        self.seconds = self.model_seconds = 0.0
        self.cut = False
        """Was a reply cut at its limit, or no room left for one?"""

    @abstractmethod
    async def ready(self, messages: list[dict[str, Any]], tools: Any) -> Any:
        """The sequence that the reply extends, its tokens those of the request; see `_begin`."""

    @abstractmethod
    async def sample(self, prompt: list[int], most: int) -> tuple[list[int], list[float] | None]:
        """At most this many tokens, and their log-probabilities."""

    @abstractmethod
    def took(self, now: Any, messages: list[dict[str, Any]], ids: list[int], logprobs: list[float] | None) -> str:
        """Add the sampled tokens to the sequence; returns their text."""

    @abstractmethod
    def ended(self, ids: list[int]) -> bool:
        """Did the model end this reply itself?"""

    async def run(self, item: Any, step: int) -> dict[str, Any]:
        """Play to the end: its reward and counts. Raises Fatal, EpisodeFailed, EngineLost."""
        began = time.monotonic()
        # Where the process has to be started first, the trainer's loop goes on meanwhile.
        episode = await asyncio.to_thread(self._engine.begin, item, step=step)
        try:
            said = await asyncio.wrap_future(episode.next)
            while "ask" in said:
                said = await self._answer(episode, said["ask"])
        except BaseException:
            episode.cancel()
            raise
        self.seconds = time.monotonic() - began
        if "fatal" in said:
            raise Fatal(said["fatal"])
        if "failed" in said:
            raise EpisodeFailed(failed(said))
        if not self.sequences:
            raise EpisodeFailed("environment: none: the episode ended without a reply of the model")
        done: dict[str, Any] = said["done"]
        return done

    @property
    def sequences(self) -> list[Any]:
        """Those with sampled tokens, in the order of the episode."""
        return [one for one in (*self._done, self._now) if one is not None and any(one.mask)]

    def _begin(self, sequence: Any) -> Any:
        """Begin another sequence: the request does not extend the last one."""
        if self._now is not None:
            self._done.append(self._now)
        self._now = sequence
        return sequence

    async def _answer(self, episode: Episode, asked: dict[str, Any]) -> dict[str, Any]:
        now = await self.ready(asked["messages"], asked["tools"])
        room = self._response_length - len(now.mask)
        if room < 1 or (not now.mask and len(now.ids) > self._prompt_length):
            self.cut = True
            return await asyncio.wrap_future(episode.reply(overflow=True))
        most = min(room, asked["sampling"].get("max_tokens") or room)
        began, prompt = time.monotonic(), list(now.ids)
        ids, logprobs = await self.sample(prompt, most)
        self.model_seconds += time.monotonic() - began
        if not ids:
            raise EpisodeFailed("generate: the server gave no token")
        text = self.took(now, asked["messages"], ids, logprobs)
        cut = len(ids) >= most and not self.ended(ids)
        self.cut = self.cut or cut
        said = episode.reply(
            text=text, ids=ids, logprobs=logprobs, prompt_ids=prompt, finish_reason="length" if cut else "stop"
        )
        return await asyncio.wrap_future(said)


async def tried(play: Callable[[], Awaitable[Any]]) -> Any:
    """What `play` returns; it is called again where the episode failed, TRIES times in all."""
    for attempt in range(TRIES):
        try:
            return await play()
        except (EngineLost, EpisodeFailed):
            if attempt == TRIES - 1:
                raise
    raise AssertionError("not reached")
