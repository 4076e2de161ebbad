"""The worker thread: takes jobs from a queue, keeps the batch full, and answers through futures.

Requests come from an event loop and wait in the queue; a job joins the batch at the next step for
which there is room (continuous batching), its n samples in parts if need be. Work that fails takes
down the jobs it was done for, never the thread.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from atropos_cli.sdk.backends import BackendError, FatalBackendError, TransientBackendError

from .batching import Batch, GenerateJob, Row, ScoreJob, fail
from .rows import CacheLost
from .runtime import is_memory_error

log = logging.getLogger(__name__)

Job = GenerateJob | ScoreJob


class Scheduler:
    """Runs one Batch on its own thread. submit() may be called from any thread."""

    def __init__(self, load: Callable[[], Batch]) -> None:
        self._load = load
        self._wake = threading.Condition()
        self._queue: deque[GenerateJob] = deque()
        self._score_queue: deque[ScoreJob] = deque()
        self._between: deque[tuple[Callable[[Batch], None], Future[None]]] = deque()
        self._at_once: deque[tuple[Callable[[Batch], None], Future[None]]] = deque()
        self._closing = False
        self._dead: BackendError | None = None
        self.batch: Batch | None = None
        self.ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, name="atropos-local", daemon=True)

    def start(self) -> None:
        """Load on the worker's thread; `ready` tells when that is done, or why it failed."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Loaded, and able to take jobs."""
        return self.batch is not None and not self._closing and self._dead is None

    def submit(self, job: Job) -> None:
        """Queue a job; its future is answered later. Raises BackendError when nothing can be done any more."""
        with self._wake:
            if self._dead is not None:
                raise self._dead
            if self._closing or self.batch is None:
                raise FatalBackendError("the local backend is not open")
            if isinstance(job, GenerateJob):
                self._queue.append(job)
            else:
                self._score_queue.append(job)
            self._wake.notify()

    def between(self, work: Callable[[Batch], None], *, wait: bool = True) -> Future[None]:
        """Do `work` on the worker's thread as soon as no request runs; what is queued meanwhile waits for it.

        wait False: before the next token of those that run. Where that fails, they fail too.
        """
        done: Future[None] = Future()
        with self._wake:
            if self._dead is not None:
                raise self._dead
            if self._closing or self.batch is None:
                raise FatalBackendError("the local backend is not open")
            (self._between if wait else self._at_once).append((work, done))
            self._wake.notify()
        return done

    def close(self) -> None:
        """Stop after the step at hand, fail what waits, free the model. Blocks; may be called more than once.

        A load that is still going on cannot be stopped: it is left to end by itself, without waiting for it.
        """
        with self._wake:
            loading = self.batch is None and self._dead is None
            self._closing = True
            self._wake.notify()
        if self._thread.ident is not None and not loading:
            self._thread.join()

    def _main(self) -> None:
        try:
            batch = self._load()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for `ready`
            self._answer_ready(error)
            return
        with self._wake:
            self.batch = batch
        import torch

        self._answer_ready(None)
        try:
            with torch.inference_mode():
                while self._turn(batch):
                    pass
            end: BackendError = BackendError("the local backend was closed while the request ran")
        except BaseException as bug:  # a dead thread must not leave anybody waiting
            log.exception("the worker thread of the local backend stopped")
            end = FatalBackendError(f"the local backend stopped: {type(bug).__name__}: {bug}")
        self._end(end)

    def _answer_ready(self, error: BaseException | None) -> None:
        with suppress(Exception):  # cancelled by a caller that did not want to wait
            if error is None:
                self.ready.set_result(None)
            else:
                self.ready.set_exception(error)

    def _end(self, error: BackendError) -> None:
        with self._wake:
            self._dead = error
            jobs: list[Job] = [*self._queue, *self._score_queue]
            self._queue.clear()
            self._score_queue.clear()
            batch, self.batch = self.batch, None
            between = [done for _, done in (*self._between, *self._at_once)]
            self._between.clear()
            self._at_once.clear()
        if batch is not None:
            jobs.extend(row.job for row in batch.rows)
            batch.forget()
        for job in jobs:
            fail(job, error)
        for done in between:
            with suppress(InvalidStateError):
                done.set_exception(error)

    def _turn(self, batch: Batch) -> bool:
        """Score what waits, admit what fits, advance all rows by a token. False when closing."""
        with self._wake:
            waiting = (self._queue, self._score_queue, self._between, self._at_once)
            while not (self._closing or any(waiting) or batch.rows):
                self._wake.wait()
            if self._closing:
                return False
            at_once = list(self._at_once)
            self._at_once.clear()
            half = bool(self._queue and self._queue[0].begun and not self._queue[0].future.done())
            between = [] if batch.rows or half else list(self._between)
            if between:
                self._between.clear()
            hold = bool(self._between)
            scores = [] if hold else self._take_scores(batch)
            rows = self._take_rows(batch, only_begun=hold)
        for work, done in at_once:
            if not self._do(batch, work, done):
                self._failed(batch, [row.job for row in batch.rows], BackendError("the weights did not change"))
        for work, done in between:
            self._do(batch, work, done)
        if scores:
            self._guard(batch, scores, lambda: batch.score(scores))
        if rows:
            self._guard(batch, [row.job for row in rows], lambda: batch.admit(rows))
        if batch.rows:
            self._guard(batch, [row.job for row in batch.rows], batch.step)
        return True

    def _do(self, batch: Batch, work: Callable[[Batch], None], done: Future[None]) -> bool:
        try:
            work(batch)
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            with suppress(InvalidStateError):
                done.set_exception(_as_backend_error(error))
            return False
        with suppress(InvalidStateError):
            done.set_result(None)
        return True

    def _take_scores(self, batch: Batch) -> list[ScoreJob]:
        taken: list[ScoreJob] = []
        while self._score_queue:
            job = self._score_queue[0]
            if not job.future.done():
                if taken and not batch.fits(taken, job):
                    break
                taken.append(job)
            self._score_queue.popleft()
        return taken

    def _take_rows(self, batch: Batch, *, only_begun: bool) -> list[Row]:
        taken: list[Row] = []
        while self._queue and (self._queue[0].begun or not only_begun):
            job = self._queue[0]
            while job.waiting and not job.future.done():
                if not batch.fits([row.job for row in taken], job):
                    return taken
                taken.append(Row(job, job.waiting.popleft()))
            self._queue.popleft()
        return taken

    def _guard(self, batch: Batch, jobs: Sequence[Job], work: Callable[[], None]) -> None:
        """Do the work; what it raises ends these jobs, and all running ones if their rows were lost."""
        try:
            work()
        except CacheLost as error:
            self._failed(batch, [*jobs, *(row.job for row in batch.rows)], _out_of_memory(error))
        except Exception as error:  # noqa: BLE001 - a model may raise anything; the jobs get it
            self._failed(batch, jobs, _as_backend_error(error))

    def _failed(self, batch: Batch, jobs: Sequence[Job], error: BackendError) -> None:
        log.warning("a batch of %d failed: %s", len(jobs), error)
        if isinstance(error, TransientBackendError):
            batch.max_rows = max(1, batch.max_rows // 2)
        for job in jobs:
            fail(job, error)
        if all(row.job.future.done() for row in batch.rows):
            batch.forget()


def _out_of_memory(error: BaseException) -> TransientBackendError:
    first_line = str(error).split("\n", 1)[0]
    return TransientBackendError(
        f"out of memory in the local backend: {first_line}",
        hint="the next batches are smaller; to avoid it give --backend.max-batch or --backend.max-batch-tokens",
    )


def _as_backend_error(error: Exception) -> BackendError:
    if isinstance(error, BackendError):
        return error
    text = str(error)
    if is_memory_error(error):
        return _out_of_memory(error)
    first_line = text.split("\n", 1)[0]
    if "CUDA error" in text or "device-side assert" in text:
        return FatalBackendError(f"the GPU failed: {first_line}", hint="start again; see the driver's log (dmesg)")
    log.debug("failure in a batch", exc_info=error)
    return BackendError(f"the model failed on a batch: {type(error).__name__}: {first_line}")
