"""Requests to the backend: the worker limit, retries, shared pauses and the circuit breaker.

    generate -> wait while paused -> take a slot -> backend.generate -> classify

A RateLimited answer makes every worker wait as long as the server asked, with pauses that grow while nothing
gets through, and never longer than `max_wait` at a time. A ServerUnavailable answer
opens the breaker: nothing is sent, the backend is probed (never by a generation), one trial request
goes when it answers, and all continue when the trial succeeds. After `max_wait` seconds the run ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from atropos_cli.domain.plan import Execution
from atropos_cli.errors import (
    AtroposError,
    BackendError,
    ContextOverflow,
    FatalBackendError,
    RateLimited,
    RequestRejected,
    ServerUnavailable,
    TransientBackendError,
)
from atropos_cli.ports.backend import GenerateRequest, Generation, InferenceBackend
from atropos_cli.rollout.stopping import Abort, Draining
from atropos_cli.rollout.tokens import of_version

if TYPE_CHECKING:
    from atropos_cli.rollout.costs import Ledger
    from atropos_cli.rollout.replycache import ReplyCache

T = TypeVar("T")
EventSink = Callable[[str, str], None]

_FIRST_DELAY = 0.25
_PROBE_DELAY_CAP = 2.0
_RETRY_DELAY_CAP = 10.0
_REJECTED_AT_START = 3
_LEAST_SCORING_S = 5.0
_LEAST_WAITS = 4  # in a row, before a server that rate limits everything is given up
_LIMITED_WAITS = 10  # times max_wait until then: quotas are counted by the minute, and a dead server is not


class GroupDeadline(Exception):
    """The group's time is over (pauses not counted)."""


class GroupBudget:
    """What the requests of one group may use together: retries and active seconds."""

    def __init__(self, retries: int, deadline: float) -> None:
        self.retries_left = retries
        self.deadline = deadline
        self.requests = 0
        self.retries = 0


class Dispatcher:
    """Sends requests for all groups of a run. `in_flight` never exceeds the workers.

    ledger: counts what they cost. cache: looked into before a request is sent.
    """

    ledger: Ledger | None = None
    cache: ReplyCache | None = None

    def __init__(self, backend: InferenceBackend, execution: Execution, on_event: EventSink) -> None:
        self.backend = backend
        self.execution = execution
        self.on_event = on_event
        self.in_flight = 0
        self.max_in_flight = 0
        self.waiting = 0
        self.requests = 0
        self.retries = 0
        self.paused_s = 0.0
        self.paused: str | None = None
        self.draining = False
        self.succeeded = 0
        self.completion_tokens = 0
        self.demand_changed = asyncio.Event()
        self._slots = asyncio.Semaphore(execution.workers)
        self._open = asyncio.Event()
        self._open.set()
        self._paused_at = 0.0
        self._down_since: float | None = None
        self._trial = False
        self._rejected = 0
        self._throttled_since: float | None = None
        self._waits = 0
        self._seen_finish_reason = False
        self._kinds_reported: set[str] = set()
        self._fatal: AtroposError | None = None
        self._pause_task: asyncio.Task[None] | None = None

    @property
    def demand(self) -> int:
        """Requests in flight or waiting for a slot."""
        return self.in_flight + self.waiting

    def active_time(self) -> float:
        """A clock that stops while the run is paused."""
        now = time.monotonic()
        return now - self.paused_s - ((now - self._paused_at) if self.paused else 0.0)

    def budget(self) -> GroupBudget:
        return GroupBudget(self.execution.retries, self.active_time() + self.execution.group_timeout)

    def scoring_time(self, budget: GroupBudget) -> float:
        """Seconds for a group's rewards. A group whose rollouts took all its time is scored if that is quick."""
        return max(budget.deadline - self.active_time(), min(_LEAST_SCORING_S, self.execution.group_timeout))

    async def generate(self, request: GenerateRequest, budget: GroupBudget, *, line: str | None = None) -> Generation:
        """One request, retried within the budget. Raises BackendError, GroupDeadline, Draining or Abort.

        line: of the bill, where that is not the model's own.
        """
        if self.cache is not None and (known := self.cache.find(request)) is not None:
            if self.ledger is not None:
                self.ledger.hit(line or self.backend.model, len(known.completions))
            return known
        generation = await self.call(lambda: self._send(request, line), budget)
        reasons = [completion.finish_reason for completion in generation.completions]
        if None in reasons and self._seen_finish_reason and budget.retries_left > 0:
            # This server does say why it stops, so silence means a broken-off answer: ask once more.
            budget.retries_left -= 1
            budget.retries += 1
            self.retries += 1
            generation = await self.call(lambda: self._send(request, line), budget)
        self._seen_finish_reason = self._seen_finish_reason or any(reasons)
        for completion in generation.completions:
            self.completion_tokens += completion.completion_tokens or 0
        if self.cache is not None:
            self.cache.keep(request, generation)
        return generation

    async def _send(self, request: GenerateRequest, line: str | None) -> Generation:
        version = self.backend.weights_version
        if self.ledger is None:
            generation = await self.backend.generate(request)
        else:
            generation = await self.ledger.pay(self.backend, request, self.backend.generate, line)
        if version is None:
            return generation
        # A server's weights may change meanwhile: then some tokens are newer than they are marked.
        return of_version(generation, version if generation.weights_version is None else generation.weights_version)

    async def call(self, send: Callable[[], Awaitable[T]], budget: GroupBudget) -> T:
        """Run `send` under the worker limit and the retry rules."""
        delay = _FIRST_DELAY
        while True:
            try:
                await self._take_slot(budget)
                try:
                    result = await self._attempt(send, budget)
                finally:
                    self._give_slot()
                self._succeed()
                return result
            except RateLimited as error:
                self._throttle(error)
            except ServerUnavailable as error:
                self._trip(error)
            except TransientBackendError as error:
                self._count_trouble(error)
                if budget.retries_left <= 0:
                    raise
                budget.retries_left -= 1
                await asyncio.sleep(error.pause(delay * random.uniform(0.75, 1.25), self.execution.max_wait))
                delay = min(delay * 2, _RETRY_DELAY_CAP)
            except RequestRejected as error:
                if self._trial:
                    self._end_trial()
                self._reject(error)
                raise
            except FatalBackendError as error:
                self.fail(error)
                raise Abort(error) from error
            budget.retries += 1
            self.retries += 1

    def fail(self, error: AtroposError) -> None:
        """Make every request, running or waiting, end with this error."""
        if self._fatal is None:
            self._fatal = error
        self._open.set()

    async def close(self) -> None:
        """Stop the probing task."""
        if self._pause_task is not None:
            self._pause_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pause_task

    async def _take_slot(self, budget: GroupBudget) -> None:
        """Wait while paused, and for a free worker. Who has a slot gives it back by _give_slot()."""
        self.waiting += 1
        try:
            while True:
                if not self._open.is_set():
                    await self._open.wait()
                self._check(budget)
                await self._slots.acquire()
                if self._open.is_set():
                    break
                self._slots.release()
        finally:
            self.waiting -= 1
        self.in_flight += 1
        try:
            self._check(budget)
        except BaseException:
            self._give_slot()
            raise
        if self._trial:
            # The server may be back: this request finds out, the others wait for its answer.
            self._open.clear()
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def _give_slot(self) -> None:
        self.in_flight -= 1
        self._slots.release()
        self.demand_changed.set()

    def _check(self, budget: GroupBudget) -> None:
        if self._fatal is not None:
            raise Abort(self._fatal)
        if self.draining and budget.requests == 0:
            raise Draining
        if self.active_time() >= budget.deadline:
            raise GroupDeadline

    async def _attempt(self, send: Callable[[], Awaitable[T]], budget: GroupBudget) -> T:
        self.requests += 1
        budget.requests += 1
        trial = self._trial
        try:
            async with asyncio.timeout(max(0.0, budget.deadline - self.active_time())) as scope:
                return await send()
        except Draining:  # it was not sent
            self.requests -= 1
            budget.requests -= 1
            raise
        except TimeoutError as error:
            if scope.expired():
                raise GroupDeadline from error
            raise TransientBackendError("no answer in time") from error
        finally:
            if trial and not self._open.is_set() and self._pause_task is None:
                # Whatever the trial brought, it must not leave the others waiting for ever.
                self._open.set()

    def _succeed(self) -> None:
        self.succeeded += 1
        self._throttled_since = None
        self._waits = 0
        if self._trial:
            self._end_trial()

    def _end_trial(self) -> None:
        """The server answered the trial request: all continue."""
        self._trial = False
        if self._down_since is not None:
            self.on_event("resumed", f"the server answers again after {time.monotonic() - self._down_since:.1f} s")
            self._down_since = None
        self._resume()

    def _count_trouble(self, error: TransientBackendError) -> None:
        kind = type(error).__name__ + ": " + str(error).split(":", 1)[0]
        if kind not in self._kinds_reported:
            self._kinds_reported.add(kind)
            self.on_event("retry", f"{error}; retrying")

    def _reject(self, error: RequestRejected) -> None:
        """A server that rejects all it gets from the start would reject a million requests alike."""
        if isinstance(error, ContextOverflow) or self.succeeded:
            return
        self._rejected += 1
        if self._rejected >= _REJECTED_AT_START:
            self.fail(
                FatalBackendError(
                    f"the server rejected the first {self._rejected} requests: {error}",
                    hint=error.hint or "the server's own log may say more",
                )
            )

    def _throttle(self, error: RateLimited) -> None:
        now = time.monotonic()
        self._throttled_since = self._throttled_since or now
        if self._pause_task is not None:
            return
        limited = now - self._throttled_since
        if self._waits >= _LEAST_WAITS and limited >= _LIMITED_WAITS * self.execution.max_wait:
            self.fail(
                BackendError(
                    f"rate limited for {limited:.0f} s, nothing got through: {error}",
                    hint="resume later with --resume; lower --workers, or raise --max-wait",
                )
            )
            return
        delay = min(_FIRST_DELAY * 2**self._waits, _RETRY_DELAY_CAP)
        if error.retry_after is None:
            delay = max(1.0, delay)
        wait = error.pause(delay, self.execution.max_wait)
        self._waits += 1
        self._pause("rate limited", f"rate limited by the server; waiting {wait:.0f} s", self._wait(wait))

    def _trip(self, error: ServerUnavailable) -> None:
        self._trial = False
        self._down_since = self._down_since or time.monotonic()
        if self._pause_task is None:
            waiting = self._probe_until_ready(error, self._down_since)
            self._pause("server unavailable", f"{error}; waiting for it", waiting)

    def _pause(self, reason: str, message: str, waiting: Awaitable[None]) -> None:
        if self.paused != reason and reason not in self._kinds_reported:
            self.on_event("paused", message)
            self._kinds_reported.add(reason)
        if self.paused is None:
            self._paused_at = time.monotonic()
        self.paused = reason
        self._open.clear()

        async def run() -> None:
            try:
                await waiting
            finally:
                self._pause_task = None

        self._pause_task = asyncio.ensure_future(run())

    def _resume(self) -> None:
        if self.paused is not None:
            self.paused_s += time.monotonic() - self._paused_at
            self.paused = None
        self._kinds_reported.discard("server unavailable")
        self._open.set()

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._resume()

    async def _probe_until_ready(self, error: ServerUnavailable, since: float) -> None:
        """Probe with growing pauses; then let one trial request through, or end the run after max_wait."""
        delay = _FIRST_DELAY
        left = self.execution.max_wait - (time.monotonic() - since)
        if error.retry_after and left > 0:
            await asyncio.sleep(min(error.retry_after, left))
            if await self._ready():
                return
        while True:
            down = time.monotonic() - since
            if down >= self.execution.max_wait:
                self.fail(
                    ServerUnavailable(
                        f"{error}; gave up after {down:.0f} s",
                        hint="repeat the command with --resume when the server answers again, or raise --max-wait",
                        address=error.address,
                    )
                )
                return
            # The longer it has been down, the longer the next pause: a server that loads weights needs minutes.
            delay = max(delay, min(down / 4, _PROBE_DELAY_CAP))
            await asyncio.sleep(min(delay, max(0.0, self.execution.max_wait - down)))
            if await self._ready():
                return
            delay = min(delay * 2, _PROBE_DELAY_CAP)

    async def _ready(self) -> bool:
        """Probe; let one trial request through when it answers."""
        if not await self.backend.probe():
            return False
        self._trial = True
        self._open.set()
        return True
