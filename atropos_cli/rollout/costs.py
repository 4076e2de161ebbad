"""The money and tokens that a run has spent by model, kept below --max-cost, and safe from kill -9.

    admit (spent + in flight + the most this can cost <= limit) -> send -> count what the server says it used

A request that does not fit waits for those in flight; when nothing is in flight and it still does not fit, the limit is
reached. So the money counted stays within the limit, as long as servers keep to max_tokens and to their own counts. An
answer that never came whole (a broken connection, no answer in time) counts with the most it can have cost, apart.

In priced runs costs.json is written in place at every change, with what is in flight: a killed session's unanswered
requests count as if they had cost the most.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from hashlib import blake2b
from pathlib import Path
from typing import Any

from atropos_cli.domain.plan import Plan, parse_shard
from atropos_cli.domain.prices import Price, PriceTable, TokenUsage
from atropos_cli.errors import AtroposError, ConfigError, DataError
from atropos_cli.io.jsonvalue import encode
from atropos_cli.ports.backend import GenerateRequest, Generation, InferenceBackend
from atropos_cli.ports.metering import Send
from atropos_cli.redaction import redacted
from atropos_cli.rollout.stopping import Draining

log = logging.getLogger("atropos.costs")
FILE = "costs.json"
UNBOUNDED = 32_768
"""Completion tokens that a request without max_tokens is taken to have at most."""
_PER_MESSAGE, _PER_REQUEST = 64, 256  # tokens that a chat template adds, at most
_PAGE = 4096
_EPSILON = 1e-9

Counts = dict[str, dict[str, float]]
"""By model: requests, tokens of each kind, cost, unsure (what requests without an answer may have cost)."""


class CostLimit(Draining):
    """The request would exceed --max-cost, and nothing is in flight that may yet turn out cheaper."""


class Ledger:
    """The meter of a run. `earlier`: what sessions before this one have spent."""

    def __init__(self, plan: Plan) -> None:
        self.table = PriceTable.of(plan.prices)
        self.currency = self.table.currency
        self.limit = plan.execution.max_cost
        if self.limit is not None and plan.execution.shard is not None:
            self.limit /= parse_shard(plan.execution.shard)[1]
        self.earlier: Counts = {}
        self.now: Counts = {}
        self.in_flight = 0.0
        self.largest_group = 0.0
        self.reached = False
        self.on_reached: Callable[[], object] = bool
        self._next, self._needed = "", 0.0
        self._sent = 0
        self._largest_request = self._most_requests = 0.0
        self._settled = asyncio.Event()
        self._known: dict[tuple[str, str | None], Price | None] = {}
        self._bill: ContextVar[list[float] | None] = ContextVar("atropos_group_bill", default=None)
        self._file: int | None = None
        self._length = 0
        self._spent_before = 0.0
        self._spent_now = 0.0

    @property
    def priced(self) -> bool:
        """Is money counted?"""
        return bool(self.table.models) or any(self._known.values()) or self._spent_before > 0

    @property
    def spent(self) -> float:
        """Money of all sessions, with what requests without an answer may have cost."""
        return self._spent_before + self._spent_now

    def check(self, backend: InferenceBackend) -> None:
        """See Meter."""
        price = self.price(backend)
        if self.limit is not None and price is None:
            model = redacted(backend.model or "?")
            raise ConfigError(
                f"--max-cost needs a price for the model {model!r}, and none is known",
                hint=f'--prices FILE with a section ["{model}"] that holds input = and output =, per million tokens',
            )

    def price(self, backend: InferenceBackend) -> Price | None:
        """The price of the backend's model: by the table, else what the backend itself knows."""
        key = backend.name, backend.model
        if key not in self._known:
            found = self.table.find(backend.model)
            # What backends know is in US dollars.
            own = backend.price() if found is None and self.currency.upper() == "USD" else None
            self._known[key] = price = found or own
            if price is None and self.table.models:
                model = redacted(backend.model or "?")
                log.warning("the prices have none for the model %r, so its requests are not in the cost", model)
        return self._known[key]

    async def pay(
        self, backend: InferenceBackend, request: GenerateRequest, send: Send, line: str | None = None
    ) -> Generation:
        """See Meter. Raises CostLimit before the request is sent, and what `send` raises.

        line: where it is counted, if not under the model.
        """
        price = self.price(backend)
        most = 0.0 if price is None else most_of(request, price)
        await self._admit(most)
        counts = self._counts(line or backend.model)
        try:
            generation = await send(request)
        except BaseException as error:
            # Who breaks off, by a signal or a deadline, pays as for an answer that never came.
            unsure = most if getattr(error, "billed", not isinstance(error, AtroposError)) else 0.0
            self._settle(counts, most, TokenUsage(), 0.0, unsure)
            raise
        usage = usage_of(generation)
        cost, unsure = 0.0, 0.0
        if price is None and self.priced:
            counts["unpriced"] = counts.get("unpriced", 0) + 1
        if price is not None:
            if self.table.find(backend.model) is None and usage.cost is not None:
                cost = usage.cost
            elif usage.prompt_tokens is None or usage.completion_tokens is None:
                unsure = most
            else:
                cost = price.of(usage)
        self._settle(counts, most, usage, cost, unsure)
        return generation

    def hit(self, line: str | None, replies: int) -> None:
        """Replies that came from the cache."""
        counts = self._counts(line)
        counts["cache_hits"] = counts.get("cache_hits", 0) + replies

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Payments inside this context, and in tasks started in it, belong to one group."""
        bill = [0.0, 0.0]
        token = self._bill.set(bill)
        try:
            yield
        finally:
            self._bill.reset(token)
            self.largest_group = max(self.largest_group, bill[0])
            self._most_requests = max(self._most_requests, bill[1])

    def room_for_group(self, running: int) -> bool:
        """May another group start beside this many? Judged by the most expensive one so far."""
        if self.limit is None:
            return True
        if self.reached:
            return False
        # The last request of a group must fit with the most it can cost, or the group would be paid for in vain.
        several = self._most_requests > 1
        group = self.largest_group if several else max(self.largest_group, self._largest_request)
        spare = self._largest_request if several else 0.0
        room = self.spent + group * (running + 1) + spare <= self.limit + _EPSILON or self.spent == 0
        if not room and not running:
            self.stop("the next group", group + spare)
        return room

    def stop(self, next_one: str, most: float) -> None:
        """The limit is reached: what would be next may cost so much."""
        if not self.reached:
            self.reached, self._needed = True, self.spent + most
            self._next = f"{next_one} may cost up to {money(most)}"
            self.on_reached()

    def told(self) -> str:
        """The message for a run that the limit ended."""
        assert self.limit is not None
        spent = f"{money(self.spent)} of {money(self.limit)} {self.currency}"
        return f"stopped at the cost limit: {spent} ({self._next})"

    async def _admit(self, most: float) -> None:
        while self.limit is not None and self.spent + self.in_flight + most > self.limit + _EPSILON:
            if not self._sent:
                self.stop("the next request", most)
                raise CostLimit
            self._settled.clear()
            await self._settled.wait()
        self.in_flight += most
        self._largest_request = max(self._largest_request, most)
        self._sent += 1
        if most:
            self._write()

    def _settle(self, counts: dict[str, float], most: float, usage: TokenUsage, cost: float, unsure: float) -> None:
        self._sent -= 1
        self.in_flight = max(0.0, self.in_flight - most) if self._sent else 0.0  # sums of floats drift
        self._spent_now += cost + unsure
        _add(counts, usage, cost, unsure)
        if (bill := self._bill.get()) is not None:
            bill[0] += cost + unsure
            bill[1] += 1
        self._settled.set()
        if most or cost:
            self._write()

    def _counts(self, line: str | None) -> dict[str, float]:
        return self.now.setdefault(redacted(line or "?"), {})

    # Kept over sessions ----------------------------------------------------------------------------------------------

    def keep_in(self, folder: Path, earlier: Mapping[str, Mapping[str, float]]) -> Counts:
        """Count in the folder's costs.json from now on. earlier: what totals.json knows. Returns what is earlier spent.

        Raises DataError where the file is there and cannot be written.
        """
        path = folder / FILE
        stored = _read(path)
        if stored is None:
            self.earlier = {model: dict(counts) for model, counts in earlier.items()}
        else:
            self.earlier, lost, largest, currency = stored
            self._adopt_currency(currency, path)
            self.largest_group, self._largest_request, self._most_requests = largest
            if lost > 0:
                counts = self.earlier.setdefault("(killed)", {})
                counts["unsure"] = counts.get("unsure", 0.0) + lost
        self._spent_before = total(self.earlier, "cost") + total(self.earlier, "unsure")
        if self.priced or stored is not None:
            try:
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                self._length = os.fstat(self._file).st_size
            except OSError as error:
                raise DataError(f"cannot write {path}: {error.strerror or error}") from error
            self._write()
        return self.earlier

    def _adopt_currency(self, currency: str, path: Path) -> None:
        """Money of sessions before is in their currency. Raises ConfigError where this one has prices in another."""
        if currency == self.currency or not (total(self.earlier, "cost") or total(self.earlier, "unsure")):
            return
        if self.table.models or any(self._known.values()):
            raise ConfigError(
                f"the run was paid for in {currency} so far ({path}), and the prices are in {self.currency} now",
                hint=f"--prices with the currency {currency}, or another folder",
            )
        self.currency = currency

    def close(self) -> None:
        """Close costs.json."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self) -> None:
        """Replace the file's text by one call: a killed process has written it, or has not."""
        if self._file is None:
            return
        state = {
            "currency": self.currency,
            "usage": merged(self.earlier, self.now),
            "in_flight": self.in_flight,
            "largest": [self.largest_group, self._largest_request, self._most_requests],
        }
        text = json.dumps(state).encode()
        line = json.dumps({"sum": _sum(text), "state": state}).encode() + b"\n"
        with contextlib.suppress(OSError):  # a full disk ends the run where groups are written
            # Blanks cover what a longer text has left there.
            self._length = max(self._length, -len(line) // _PAGE * -_PAGE)
            os.pwrite(self._file, line.ljust(self._length), 0)

    def fields(self) -> dict[str, Any]:
        """The part of a RunSummary that is counted here."""
        if not self.priced:
            return {}
        whole = merged(self.earlier, self.now)
        unsure = total(whole, "unsure")
        return {
            "cost": round(total(whole, "cost") + unsure, 8),
            "cost_unsure": round(unsure, 8),
            "currency": self.currency,
            "max_cost": self.limit,
            "stopped": self.told() if self.reached else None,
            "next_cost": round(self._needed, 8) if self.reached else None,
        }


def most_of(request: GenerateRequest, price: Price) -> float:
    """The most the request can cost: no token is shorter than a byte, and no completion longer than max_tokens."""
    if request.prompt_ids is not None:
        prompt = len(request.prompt_ids)
    else:
        prompt = sum(_length(message) for message in request.messages)
    prompt += len(json.dumps(request.tools).encode()) if request.tools else 0
    prompt += _PER_REQUEST + len(request.prefill.encode("utf-8", "replace"))
    return price.most(prompt, request.n * (request.sampling.max_tokens or UNBOUNDED))


def _length(message: Any) -> int:
    if isinstance(message.content, str) and not message.tool_calls and not message.reasoning:
        return len(message.content.encode("utf-8", "replace")) + _PER_MESSAGE
    return len(encode(message.model_copy(update={"tokens": None}))) + _PER_MESSAGE


def usage_of(generation: Generation) -> TokenUsage:
    """The billed tokens of a generation: as reported by the server, else counted from its parts."""
    if generation.usage is not None:
        return generation.usage
    counts = [completion.completion_tokens for completion in generation.completions]
    known = [count for count in counts if count is not None]
    completion = sum(known) if len(known) == len(counts) and counts else None
    return TokenUsage(prompt_tokens=generation.prompt_tokens, completion_tokens=completion)


def check_limit(plan: Plan) -> None:
    """Check that the plan has everything that --max-cost needs. Raises ConfigError."""
    if plan.execution.max_cost is not None and plan.sampling.max_tokens is None:
        raise ConfigError(
            "--max-cost needs to know how long a completion may become", hint="add --max-tokens N, such as 1024"
        )


def money(value: float) -> str:
    """An amount: two digits behind the point, more where those would say nothing."""
    if value == 0 or abs(value) >= 1:
        return f"{value:.2f}"
    if abs(value) < 1e-5:
        return f"{value:.2g}"
    return f"{value:.4f}" if abs(value) >= 0.01 else f"{value:.6f}"


def total(counts: Mapping[str, Mapping[str, float]], name: str) -> float:
    """One count over all models."""
    return sum(one.get(name, 0.0) for one in counts.values())


def merged(earlier: Mapping[str, Mapping[str, float]], now: Mapping[str, Mapping[str, float]]) -> Counts:
    """Both added."""
    whole = {model: dict(counts) for model, counts in earlier.items()}
    for model, counts in now.items():
        mine = whole.setdefault(model, {})
        for name, value in counts.items():
            mine[name] = mine.get(name, 0) + value
    return whole


def _add(counts: dict[str, float], usage: TokenUsage, cost: float, unsure: float) -> None:
    more: dict[str, float] = {"requests": 1, "cost": cost, "unsure": unsure}
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens"):
        more[name] = getattr(usage, name) or 0
    for name, value in more.items():
        if value:
            counts[name] = counts.get(name, 0) + value


def _sum(text: bytes) -> str:
    return blake2b(text, digest_size=8).hexdigest()


def _read(path: Path) -> tuple[Counts, float, list[float], str] | None:
    """Usage, what was in flight, of the largest a group's and a request's money and a group's requests, the currency.

    None where there is no file that can be believed.
    """
    try:
        data = json.loads(path.read_bytes())
        state = data["state"]
        if data["sum"] != _sum(json.dumps(state).encode()):
            return None
        usage = {
            str(model): {str(name): _amount(value) for name, value in counts.items()}
            for model, counts in state["usage"].items()
        }
        group, request, requests = map(_amount, state["largest"])
        return usage, _amount(state["in_flight"]), [group, request, requests], str(state["currency"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"{value!r} is not an amount")
    return value
