"""The running batch: rows join after a prefill, advance together one token a step, and leave when done.

    admit -> find a known prefix -> prefill what is new, once per distinct prompt -> first token
    step  -> one token for every row -> rows that ended leave, the last row takes their place
    score -> given tokens, in rows behind the running ones

All methods run on the worker's thread.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk.backends import BackendError
from atropos_cli.sdk.models import StopText

from .decoder import CHUNK_TOKENS, Decoder
from .picking import Picks
from .rows import MIN_SHARED, PrefixStore, Saved, common_prefix
from .sampling import Choice, choose, stream

if TYPE_CHECKING:
    from torch import Tensor

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampled reply. ids include the end token when it was sampled; finish_reason "stop" or "length".

    mask: False for a token that had no alternative, by the texts that the reply was to be one of. It says nothing of
    the policy, so that nothing is to be learnt from it.
    """

    ids: Ids
    logprobs: tuple[float, ...]
    finish_reason: str
    mask: bool | tuple[bool, ...] = True


@dataclass(eq=False)
class GenerateJob:
    """A request for n samples. The future is cancelled by whoever gives up.

    limit: most tokens of each. picks: what the replies may be, None for anything.
    version: of the weights that drew its first token, once that is drawn; later tokens may be of newer ones.
    """

    prompt: Ids
    n: int
    limit: int
    choice: Choice
    seed: int | None
    stop: StopText
    picks: Picks | None = None
    future: Future[list[Sample]] = field(default_factory=Future)
    waiting: deque[int] = field(init=False)
    done: dict[int, Sample] = field(default_factory=dict)
    begun: bool = False
    version: int | None = None

    def __post_init__(self) -> None:
        self.waiting = deque(range(self.n))

    @property
    def final_length(self) -> int:
        """Positions a row of this job may come to hold."""
        return len(self.prompt) + self.limit


@dataclass(eq=False)
class ScoreJob:
    """A request for the log-probabilities of a continuation."""

    prefix: Ids
    continuation: Ids
    future: Future[list[float]] = field(default_factory=Future)

    @property
    def final_length(self) -> int:
        """Positions its row will hold."""
        return len(self.prefix) + len(self.continuation)


class Row:
    """One sample in the making."""

    def __init__(self, job: GenerateJob, index: int) -> None:
        self.job = job
        self.index = index
        self.numbers: Random = stream(job.seed, index)
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.free: list[bool] = []
        self.finish_reason: str | None = None

    @property
    def length(self) -> int:
        """Filled positions in the cache: the last sampled token is not in it yet."""
        return len(self.job.prompt) + len(self.ids) - 1

    @property
    def over(self) -> bool:
        """Ended, failed, or not wanted any more."""
        return self.finish_reason is not None or self.job.future.done()

    @property
    def allowed(self) -> Sequence[int]:
        """The tokens that may come next, where not any may."""
        return self.job.picks.after(self.ids) if self.job.picks is not None else ()

    def take(self, token: int, logprob: float, end_ids: frozenset[int]) -> None:
        """Append a token and see whether the sample ends with it."""
        if not math.isfinite(logprob):
            fail(
                self.job, BackendError("the model's logits are not finite numbers", hint="try --backend.dtype float32")
            )
            return
        if self.job.picks is not None:
            self.free.append(len(self.allowed) > 1)
        self.ids.append(token)
        self.logprobs.append(logprob)
        if token in end_ids or self.job.stop.found(self.ids):
            self.finish_reason = "stop"
        elif len(self.ids) >= self.job.limit:
            self.finish_reason = "length"


@dataclass(frozen=True)
class _Start:
    """How a new row begins: `reused` positions come from a saved or a running row, the rest is computed."""

    ids: Ids
    reused: int
    saved: Saved | None
    running: int
    owner: Any

    @property
    def new(self) -> Ids:
        return self.ids[self.reused :]


class Batch:
    """The rows that run together, and the prefixes kept of those that ran.

    max_rows: rows at a time. The memory of rows and their length is bounded by the decoder's rows.max_tokens;
    one row may exceed it alone.
    """

    def __init__(
        self, decoder: Decoder, *, end_ids: Iterable[int], max_rows: int, kept_tokens: int, tempered: bool = False
    ) -> None:
        self.decoder = decoder
        self.tempered = tempered
        self.end_ids = frozenset(end_ids)
        self.max_rows = max_rows
        self.store = PrefixStore(kept_tokens)
        self.rows: list[Row] = []
        self.version: int | None = None
        """Of the weights; set with them, on this thread: what waits behind a change is of the new ones."""
        self.reused_tokens = 0
        self.computed_tokens = 0
        self.steps = 0

    def fits(self, joining: Sequence[GenerateJob | ScoreJob], job: GenerateJob | ScoreJob) -> bool:
        """Is there room for one more row beside the running and the joining ones?"""
        count = len(self.rows) + len(joining) + 1
        if count == 1:
            return True
        longest = max([job.final_length, *(j.final_length for j in joining), *(r.job.final_length for r in self.rows)])
        return count <= self.max_rows and count * longest <= self.decoder.rows.max_tokens

    def admit(self, rows: Sequence[Row]) -> None:
        """Let rows join: fill their positions and sample the first token of each."""
        import torch

        by_prompt: dict[Ids, list[Row]] = {}
        for row in rows:
            if not row.job.begun:
                row.job.begun, row.job.version = True, self.version
            by_prompt.setdefault(row.job.prompt, []).append(row)
        running = self._running()
        starts = [self._start(prompt, len(prompt) - 1, owners, running) for prompt, owners in by_prompt.items()]
        starts.sort(key=lambda start: len(start.new))
        first = len(self.rows)
        self.decoder.rows.reserve(first + len(rows), max(len(start.ids) for start in starts))
        logits = []
        slot = first
        for group in _similar(starts):
            self._restore(slot, group)
            logits.append(self.decoder.prefill(slot, [s.new for s in group], [s.reused for s in group]))
            slot += len(group)
        all_logits = torch.cat(logits)
        joined = [start.owner[0] for start in starts]
        order = list(range(len(starts)))
        for at, start in enumerate(starts):
            twins = start.owner[1:]
            if twins:
                self.decoder.rows.copy(first + at, first + len(joined), len(start.ids), count=len(twins))
                joined.extend(twins)
                order.extend([at] * len(twins))
        self._sample(joined, all_logits[order] if len(order) > len(starts) else all_logits)
        self.rows.extend(joined)
        self._settle()

    def step(self) -> None:
        """One token for every row."""
        self._settle()  # first let go of those that were cancelled meanwhile
        if not self.rows:
            return
        logits = self.decoder.step([row.ids[-1] for row in self.rows], [row.length for row in self.rows])
        self.computed_tokens += len(self.rows)
        self.steps += 1
        self._sample(self.rows, logits)
        self._settle()

    def score(self, jobs: Sequence[ScoreJob]) -> None:
        """Score given tokens in rows behind the running ones, and answer the jobs."""
        first = len(self.rows)
        running = self._running()
        starts = [self._start((*job.prefix, *job.continuation[:-1]), len(job.prefix) - 1, job, running) for job in jobs]
        starts.sort(key=lambda start: len(start.new))
        for group in _similar(starts):
            self.decoder.rows.reserve(first + len(group), max(len(start.ids) for start in group))
            self._restore(first, group)
            goals = [start.owner.continuation for start in group]
            found = self.decoder.score(first, [s.new for s in group], [s.reused for s in group], goals)
            for at, (start, logprobs) in enumerate(zip(group, found, strict=True)):
                self._keep(first + at, start.ids)
                with suppress(InvalidStateError):
                    start.owner.future.set_result(logprobs)

    def forget(self) -> None:
        """Drop all rows and prefixes; the jobs are the caller's business."""
        self.rows.clear()
        self.store.clear()
        self.decoder.clear()

    def renew(self) -> None:
        """The model's weights are others: compute again what the running rows hold, keep nothing else."""
        self._settle()
        self.store.clear()
        if not self.rows:
            self.decoder.clear()
            return
        self.rows.sort(key=lambda row: row.length)
        starts = [_Start((*row.job.prompt, *row.ids[:-1]), 0, None, -1, row) for row in self.rows]
        slot = 0
        for group in _similar(starts):
            self.decoder.prefill(slot, [start.ids for start in group], [0] * len(group))
            slot += len(group)
            self.computed_tokens += sum(len(start.ids) for start in group)

    def _running(self) -> list[Tensor]:
        """What the running rows hold, by slot."""
        import torch

        return [torch.tensor((*row.job.prompt, *row.ids[:-1])) for row in self.rows]

    def _start(self, ids: Ids, most: int, owner: Any, running: Sequence[Tensor]) -> _Start:
        """Plan a row: the longest known prefix of at most `most` positions, from the store or a running row."""
        import torch

        wanted = torch.tensor(ids[:most], dtype=torch.int64)
        reused, saved = self.store.find(wanted)
        best = -1
        for slot, held in enumerate(running):
            shared = common_prefix(held, wanted)
            if shared > reused and shared >= MIN_SHARED:
                reused, best = shared, slot
        return _Start(ids, reused, saved if best < 0 else None, best, owner)

    def _restore(self, slot: int, group: Sequence[_Start]) -> None:
        for target, start in enumerate(group, start=slot):
            if start.running >= 0:
                self.decoder.rows.copy(start.running, target, start.reused)
            elif start.saved is not None:
                self.decoder.rows.restore(target, start.saved, start.reused)
            self.reused_tokens += start.reused
            self.computed_tokens += len(start.new)

    def _sample(self, rows: Sequence[Row], logits: Tensor) -> None:
        choices = [row.job.choice for row in rows]
        numbers = [0.0 if choice.greedy else row.numbers.random() for row, choice in zip(rows, choices, strict=True)]
        allowed = {at: row.allowed for at, row in enumerate(rows) if row.job.picks is not None}
        tokens, logprobs = choose(logits, choices, numbers, tempered=self.tempered, allowed=allowed)
        for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
            row.take(token, logprob, self.end_ids)

    def _settle(self) -> None:
        """Rows that are over leave; the last row moves into the place of each."""
        for slot in reversed(range(len(self.rows))):
            row = self.rows[slot]
            if not row.over:
                continue
            if row.finish_reason is not None and not row.job.future.cancelled():
                self._keep(slot, (*row.job.prompt, *row.ids[:-1]))
                _finish(row)
            last = self.rows.pop()
            if last is not row:
                self.decoder.rows.copy(len(self.rows), slot, last.length)
                self.rows[slot] = last

    def _keep(self, slot: int, ids: Ids) -> None:
        import torch

        key = torch.tensor(ids)
        if self.store.worth_adding(key):
            self.store.add(key, self.decoder.rows.save(slot, len(ids)))


def fail(job: GenerateJob | ScoreJob, error: BackendError) -> None:
    """End a job with an error, unless it ended already."""
    with suppress(InvalidStateError):
        job.future.set_exception(error)


def _finish(row: Row) -> None:
    job = row.job
    job.done[row.index] = Sample(
        tuple(row.ids), tuple(row.logprobs), row.finish_reason or "stop", tuple(row.free) if row.free else True
    )
    if len(job.done) == job.n:
        with suppress(InvalidStateError):
            job.future.set_result([job.done[index] for index in range(job.n)])


def _similar(starts: Sequence[_Start]) -> list[list[_Start]]:
    """Split starts, sorted by how much is new, into groups worth one padded forward pass each."""
    groups: list[list[_Start]] = []
    for start in starts:
        size = len(start.new)
        if groups and _worth_joining(groups[-1], size):
            groups[-1].append(start)
        else:
            groups.append([start])
    return groups


def _worth_joining(group: Sequence[_Start], size: int) -> bool:
    padded = (len(group) + 1) * size
    wasted = padded - size - sum(len(start.new) for start in group)
    return padded <= CHUNK_TOKENS and 4 * wasted <= padded
