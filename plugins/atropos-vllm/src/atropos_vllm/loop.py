"""The thread that owns the engine: requests join the running ones at the next step, answers go to futures.

    loop = EngineLoop(build); loop.start(); loop.submit(Job(...)); await asyncio.wrap_future(job.future)

Only this thread ever calls the engine.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from atropos_cli.sdk.backends import BackendError, FatalBackendError

from .results import Sample

log = logging.getLogger(__name__)


class Engine(Protocol):
    """What the loop needs of an engine."""

    @property
    def busy(self) -> bool:
        """Is there a request that has not ended?"""

    def prepare(self) -> None:
        """Called before requests join an idle engine. Raises BackendError when it cannot sample."""

    def add(self, request_id: str, prompt: Sequence[int], arguments: dict[str, Any]) -> None:
        """Begin a request of one sample. Raises RequestRejected."""

    def abort(self, request_ids: Sequence[str]) -> None:
        """End requests without an answer."""

    def step(self) -> Sequence[tuple[str, Sample | BackendError]]:
        """One token for every running request; those that ended."""

    def close(self) -> None:
        """Free everything."""


@dataclass(eq=False)
class Job:
    """A prompt and the arguments of each sample wanted of it; the future gets them in that order."""

    prompt: Sequence[int]
    arguments: Sequence[dict[str, Any]]
    future: Future[list[Sample]] = field(default_factory=Future)
    waiting: dict[str, int] = field(default_factory=dict)
    """Request ids that run, and which sample each is."""
    samples: dict[int, Sample] = field(default_factory=dict)


class EngineLoop:
    """Runs one engine on its own thread; submit() and between() may be called from any thread."""

    def __init__(self, build: Callable[[], Engine]) -> None:
        self._build = build
        self._wake = threading.Condition()
        self._queue: deque[Job] = deque()
        self._between: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._closing = False
        self._dead: BackendError | None = None
        self._loaded = False
        self._running: dict[str, Job] = {}
        self._numbers = itertools.count()
        self.ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, name="atropos-vllm", daemon=True)

    def start(self) -> None:
        """Build the engine on its thread; `ready` tells when that is done, or why it failed."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Loaded, and able to take jobs."""
        return self._loaded and not self._closing and self._dead is None

    def submit(self, job: Job) -> None:
        """Queue a job; its future is answered later. Raises BackendError when nothing can be done any more."""
        with self._wake:
            self._check()
            self._queue.append(job)
            self._wake.notify()

    def between(self, work: Callable[[], None]) -> Future[None]:
        """Do `work` on the engine's thread as soon as no sample runs; what is queued meanwhile waits for it."""
        done: Future[None] = Future()
        with self._wake:
            self._check()
            self._between.append((work, done))
            self._wake.notify()
        return done

    def cancelled(self) -> None:
        """A job's future was cancelled: look at once."""
        with self._wake:
            self._wake.notify()

    def close(self) -> None:
        """Stop after the step at hand, fail what waits, free the engine. Blocks; a start that goes on is left alone."""
        with self._wake:
            loading = not self._loaded and self._dead is None
            self._closing = True
            self._wake.notify()
        if self._thread.ident is not None and not loading:
            self._thread.join()

    def _check(self) -> None:
        if self._dead is not None:
            raise self._dead
        if self._closing or not self._loaded:
            raise FatalBackendError("the vllm backend is not open")

    def _main(self) -> None:
        try:
            engine = self._build()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for `ready`
            self._answer_ready(error)
            return
        with self._wake:
            self._loaded = True
        self._answer_ready(None)
        end: BackendError = BackendError("the vllm backend was closed while the request ran")
        try:
            while self._turn(engine):
                pass
        except Exception as error:  # an engine that failed in a step cannot be used again
            log.exception("the vLLM engine stopped")
            first_line = (str(error).strip() or "no reason given").split("\n", 1)[0]
            end = FatalBackendError(
                f"the vLLM engine stopped: {type(error).__name__}: {first_line}",
                hint="out of memory: a lower --backend.gpu-memory-utilization, --backend.max-num-seqs or --max-tokens",
            )
        self._end(end)
        try:
            engine.close()
        except Exception:  # nobody needs it any more
            log.exception("the vLLM engine could not be closed")

    def _answer_ready(self, error: BaseException | None) -> None:
        with suppress(InvalidStateError):  # cancelled by a caller that did not want to wait
            if error is None:
                self.ready.set_result(None)
            else:
                self.ready.set_exception(error)

    def _end(self, error: BackendError) -> None:
        with self._wake:
            self._dead = error
            jobs = {*self._queue, *self._running.values()}
            between = [done for _, done in self._between]
            self._queue.clear()
            self._between.clear()
            self._running.clear()
        for job in jobs:
            _fail(job.future, error)
        for done in between:
            _fail(done, error)

    def _turn(self, engine: Engine) -> bool:
        """Let go of cancelled jobs, admit what waits, advance all by a token. False when closing."""
        with self._wake:
            while not (self._closing or self._queue or self._between or self._running):
                self._wake.wait()
            if self._closing:
                return False
        self._drop_cancelled(engine)
        with self._wake:
            between = [] if self._running else list(self._between)
            if between:
                self._between.clear()
            jobs = [] if self._between else list(self._queue)
            if jobs:
                self._queue.clear()
        for work, done in between:
            _do(work, done)
        if jobs:
            self._admit(engine, jobs)
        if self._running or engine.busy:
            self._finish(engine.step())
        return True

    def _drop_cancelled(self, engine: Engine) -> None:
        gone = {job for job in self._running.values() if job.future.done()}
        for job in gone:
            self._forget(engine, job)

    def _forget(self, engine: Engine, job: Job) -> None:
        engine.abort(list(job.waiting))
        for request_id in job.waiting:
            self._running.pop(request_id, None)
        job.waiting.clear()

    def _admit(self, engine: Engine, jobs: Sequence[Job]) -> None:
        try:
            if not self._running:
                engine.prepare()
        except BackendError as error:
            for job in jobs:
                _fail(job.future, error)
            return
        for job in jobs:
            if not job.future.done():
                self._begin(engine, job)

    def _begin(self, engine: Engine, job: Job) -> None:
        for place, arguments in enumerate(job.arguments):
            request_id = str(next(self._numbers))
            try:
                engine.add(request_id, job.prompt, arguments)
            except BackendError as error:
                self._forget(engine, job)
                _fail(job.future, error)
                return
            job.waiting[request_id] = place
            self._running[request_id] = job

    def _finish(self, ended: Sequence[tuple[str, Sample | BackendError]]) -> None:
        for request_id, answer in ended:
            job = self._running.pop(request_id, None)
            if job is None:
                continue
            place = job.waiting.pop(request_id)
            if isinstance(answer, BackendError):
                _fail(job.future, answer)  # its other samples are let go of at the next turn
            else:
                job.samples[place] = answer
                if not job.waiting:
                    with suppress(InvalidStateError):
                        job.future.set_result([job.samples[at] for at in range(len(job.arguments))])


def _do(work: Callable[[], None], done: Future[None]) -> None:
    try:
        work()
    except BackendError as error:
        _fail(done, error)
    except Exception as error:  # noqa: BLE001 - whoever waits gets it
        first_line = (str(error).strip() or "no reason given").split("\n", 1)[0]
        _fail(done, FatalBackendError(f"vLLM failed: {type(error).__name__}: {first_line}"))
    else:
        with suppress(InvalidStateError):
            done.set_result(None)


def _fail(future: Future[Any], error: BackendError) -> None:
    with suppress(InvalidStateError):
        future.set_exception(error)
