"""What a run spends: prices, the limit under any load, and totals that outlive their session."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Bench, FakeBackend, right, say

from atropos_cli.domain.plan import Execution, Plan
from atropos_cli.domain.prices import Price, PriceTable, TokenUsage
from atropos_cli.errors import ConfigError, RateLimited, RequestRejected, TransientBackendError
from atropos_cli.ports.backend import GenerateRequest
from atropos_cli.rollout.costs import FILE, CostLimit, Ledger, most_of, total
from atropos_cli.sdk import user
from atropos_cli.sdk.backends import Generation, Sampling

PRICES = {"currency": "EUR", "fake-*": {"input": 2.0, "output": 8.0, "cached_input": 0.5, "reasoning": 10.0}}
BACKEND = {"name": "fake", "dist": "tests"}


@pytest.mark.parametrize(
    ("usage", "money"),
    [
        ({"prompt_tokens": 1_000_000}, 2.0),
        ({"completion_tokens": 1_000_000}, 8.0),
        ({"prompt_tokens": 1_000_000, "cached_tokens": 500_000}, 1.25),
        ({"completion_tokens": 1_000_000, "reasoning_tokens": 500_000}, 9.0),
        ({"prompt_tokens": 10, "cached_tokens": 1_000_000}, 5e-6),  # more than there were
        ({}, 0.0),
    ],
)
def test_money_of_tokens(usage: dict[str, int], money: float) -> None:
    price = PriceTable.of(PRICES).find("fake-model")
    assert price is not None
    assert price.of(TokenUsage(**usage)) == pytest.approx(money)


def test_the_pattern_that_says_most_counts() -> None:
    one = {"input": 1, "output": 1}
    table = PriceTable.of(
        {"*": one, "a/*": {**one, "input": 2}, "a/b*": {**one, "input": 3}, "a/b": {**one, "input": 4}}
    )
    found = [table.find(model) for model in ("a/b", "a/bc", "a/c", "z")]
    assert [price.input for price in found if price] == [4, 3, 2, 1]
    assert PriceTable.of({"a": one}).find("b") is None
    assert PriceTable.of({"a": one}).find(None) is None


def plan(limit: float | None, *, shard: str | None = None, prices: Any = PRICES) -> Plan:
    return Plan(
        atropos_version="0", environment=BACKEND, backend=BACKEND, prices=prices,
        execution=Execution(max_cost=limit, shard=shard),
    )  # fmt: skip


def backend(answer: Any) -> FakeBackend:
    made = FakeBackend(None, model="fake-model")
    made.answer = answer
    made.requests, made.in_flight, made.most = [], 0, 0
    return made


def ask(prompt: str = "x" * 400, max_tokens: int = 50, n: int = 1) -> GenerateRequest:
    return GenerateRequest(messages=(user(prompt),), n=n, sampling=Sampling(max_tokens=max_tokens))


Ends = st.sampled_from(["answer", "fail", "lost", "quiet"])
Load = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(1, 400), st.integers(1, 4), st.floats(0, 1), Ends),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(load=Load, limit=st.floats(1e-4, 0.2), seed=st.integers(0, 99))
def test_what_is_billed_never_exceeds_the_limit(load: list[Any], limit: float, seed: int) -> None:
    """Any mix of sizes, answers, errors and broken connections, all at once: the bill stays within the limit."""
    rng = random.Random(seed)
    price = PriceTable.of(PRICES).models["fake-*"]
    billed, refused, sent = 0.0, 0, 0

    async def play() -> Ledger:
        nonlocal billed, refused, sent
        ledger = Ledger(plan(limit))

        async def one(prompt: int, most: int, n: int, share: float, end: str) -> None:
            nonlocal billed, refused, sent
            usage = TokenUsage(
                prompt_tokens=prompt, completion_tokens=int(most * n * share), cached_tokens=prompt // 3,
                reasoning_tokens=most * n,
            )  # fmt: skip

            async def answer(request: GenerateRequest) -> Generation:
                nonlocal billed, sent
                sent += 1
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
                if end == "fail":
                    raise RateLimited("429") if rng.random() < 0.5 else RequestRejected("400")
                billed += price.of(usage)
                if end == "lost":
                    raise TransientBackendError("broken off")
                return say("ok").model_copy(update={"usage": None if end == "quiet" else usage, "prompt_tokens": None})

            try:
                await ledger.pay(backend(answer), ask("x" * prompt, most, n), answer)
            except CostLimit:
                refused += 1
                assert ledger.reached
            except (RateLimited, RequestRejected, TransientBackendError):
                pass

        await asyncio.gather(*(one(*row) for row in load))
        return ledger

    ledger = asyncio.run(play())
    assert billed <= ledger.spent + 1e-9
    assert ledger.spent <= limit + 1e-8
    assert ledger.in_flight == 0
    assert sent + refused == len(load)


async def test_a_request_that_does_not_fit_waits_for_those_in_flight() -> None:
    gate = asyncio.Event()
    cheap = TokenUsage(prompt_tokens=1, completion_tokens=1)

    async def slow(request: GenerateRequest) -> Generation:
        await gate.wait()
        return say("ok").model_copy(update={"usage": cheap})

    most = most_of(ask(), PriceTable.of(PRICES).models["fake-*"])
    ledger = Ledger(plan(1.5 * most))
    made = backend(slow)
    first = asyncio.create_task(ledger.pay(made, ask(), slow))
    second = asyncio.create_task(ledger.pay(made, ask(), slow))
    await asyncio.sleep(0.01)
    assert ledger.in_flight == most
    gate.set()
    await asyncio.gather(first, second)
    assert not ledger.reached
    assert ledger.spent == pytest.approx(2 * 10e-6)


async def test_who_is_cancelled_pays_as_for_a_lost_answer() -> None:
    async def never(request: GenerateRequest) -> Generation:
        await asyncio.sleep(60)
        raise AssertionError

    ledger = Ledger(plan(None))
    asked = asyncio.create_task(ledger.pay(backend(never), ask(), never))
    await asyncio.sleep(0.01)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert ledger.fields()["cost_unsure"] == round(most_of(ask(), PriceTable.of(PRICES).models["fake-*"]), 8)


def test_shards_share_the_limit() -> None:
    assert Ledger(plan(8.0, shard="2/4")).limit == 2.0


def test_totals_outlive_a_killed_session(tmp_path: Path) -> None:
    first = Ledger(plan(1.0))
    first.keep_in(tmp_path, {})

    async def play() -> None:
        usage = TokenUsage(prompt_tokens=1000, completion_tokens=100)

        async def answer(request: GenerateRequest) -> Generation:
            return say("ok").model_copy(update={"usage": usage})

        async def never(request: GenerateRequest) -> Generation:
            await asyncio.sleep(60)
            raise AssertionError

        await first.pay(backend(answer), ask(), answer)
        lost = asyncio.create_task(first.pay(backend(never), ask(), never))
        await asyncio.sleep(0.01)
        (tmp_path / "killed").write_bytes((tmp_path / FILE).read_bytes())  # as kill -9 would leave it
        lost.cancel()

    asyncio.run(play())
    (tmp_path / FILE).write_bytes((tmp_path / "killed").read_bytes())
    again = Ledger(plan(1.0))
    earlier = again.keep_in(tmp_path, {})
    assert earlier["fake-model"]["cost"] == pytest.approx(0.0028)
    most = most_of(ask(), PriceTable.of(PRICES).models["fake-*"])
    assert again.spent == pytest.approx(0.0028 + most)
    again.close()
    third = Ledger(plan(1.0))
    third.keep_in(tmp_path, {})
    assert third.spent == pytest.approx(again.spent), "what was lost counts once"


@pytest.mark.parametrize("damage", [b"", b"{}", b"\x00" * 4096, b'{"sum": "x", "state": {}}', b"[]", b'{"sum": 1'])
def test_a_damaged_file_falls_back_to_the_runs_totals(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / FILE).write_bytes(damage)
    ledger = Ledger(plan(1.0))
    ledger.keep_in(tmp_path, {"fake-model": {"cost": 0.25}})
    assert ledger.spent == 0.25
    ledger.close()
    assert json.loads((tmp_path / FILE).read_bytes())["state"]["usage"] == {"fake-model": {"cost": 0.25}}


def paid(usage: TokenUsage, text: str = "ok") -> Any:
    return lambda request: right(request).model_copy(update={"usage": usage})


def limited(bench: Bench, limit: float | None, prices: Any = PRICES, **more: Any) -> Plan:
    made = bench.plan(execution={"max_cost": limit, **more.pop("how", {})}, limit=50, **more)
    return made.model_copy(update={"prices": prices})


def test_a_run_stops_at_the_limit_and_goes_on(bench: Bench) -> None:
    bench.answer(paid(TokenUsage(prompt_tokens=1000, completion_tokens=1000)))
    first = bench.run(limited(bench, 0.3))
    assert first.state == "interrupted"
    assert first.cost == pytest.approx(0.01 * first.groups_done)
    assert 0 < first.groups_done < 50
    assert first.cost <= 0.3
    assert first.stopped is not None
    assert first.stopped.startswith(f"stopped at the cost limit: {first.cost:.4f} of 0.3000 EUR (the next ")
    again = bench.run(limited(bench, 0.3), resume=True)
    assert (again.groups_done, again.cost, bench.backend.last.requests) == (first.groups_done, first.cost, [])
    done = bench.run(limited(bench, 10), resume=True)
    assert (done.state, done.groups_done, done.stopped) == ("finished", 50, None)
    assert done.cost == pytest.approx(0.5)
    assert done.usage["fake-model"]["requests"] == 50


def test_groups_of_several_turns_are_not_begun_in_vain(bench: Bench) -> None:
    """Near the limit fewer groups are open, so that those that are can be finished."""
    from support import CountingEnvironment

    bench.use(CountingEnvironment)
    usage = TokenUsage(prompt_tokens=100, completion_tokens=10)
    bench.answer(lambda request: say("go", n=request.n).model_copy(update={"usage": usage}))
    each = 5 * PriceTable.of(PRICES).models["fake-*"].of(usage)
    made = limited(bench, 40.5 * each, sampling=Sampling(max_tokens=10))
    ended = bench.run(made)
    assert ended.state == "interrupted"
    assert ended.groups_done >= 35
    assert ended.cost == pytest.approx(each * ended.groups_done), "no group was paid for and thrown away"


def test_what_is_needed_is_asked_for_before_the_run(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="needs a price"):
        bench.run(limited(bench, 1.0, prices={}))
    with pytest.raises(ConfigError, match="how long"):
        bench.run(limited(bench, 1.0, sampling=Sampling(max_tokens=None)))
    assert not (bench.folder / "groups.jsonl").exists()


def test_repeated_requests_are_paid_too(bench: Bench) -> None:
    seen: dict[str, int] = {}
    usage = TokenUsage(prompt_tokens=1000, completion_tokens=1000)

    def answer(request: GenerateRequest) -> Generation:
        text = request.messages[0].text
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 1:
            raise TransientBackendError("broken off")
        return right(request).model_copy(update={"usage": usage})

    bench.answer(answer)
    ended = bench.run(limited(bench, None, how={"retries": 3}))
    counts = ended.usage["fake-model"]
    assert counts["requests"] == 100
    assert counts["cost"] == pytest.approx(0.5)
    assert ended.cost_unsure == pytest.approx(counts["unsure"], abs=1e-7)
    assert ended.cost == pytest.approx(0.5 + ended.cost_unsure, abs=1e-7)


def test_without_prices_tokens_alone_are_counted(bench: Bench) -> None:
    bench.answer(paid(TokenUsage(prompt_tokens=7, completion_tokens=3, cached_tokens=2, reasoning_tokens=1)))
    ended = bench.run(limited(bench, None, prices={}))
    assert ended.cost is None
    assert ended.usage["fake-model"] == {
        "requests": 50, "prompt_tokens": 350, "completion_tokens": 150, "cached_tokens": 100, "reasoning_tokens": 50
    }  # fmt: skip
    assert not (bench.folder / FILE).exists()


def test_the_most_is_no_less_than_what_any_tokenizer_makes_of_it() -> None:
    price = Price(input=1e6, output=0)
    for text in ("plain", "é" * 50, "漢字" * 50, "\U0001f600" * 20, "\ud800", ""):
        assert most_of(ask(text), price) >= len(text.encode("utf-8", "replace"))
    assert most_of(GenerateRequest(prompt_ids=(1, 2, 3)), price) >= 3
    assert total({}, "cost") == 0


def test_half_a_character_has_a_length() -> None:
    from atropos_cli.domain.messages import Message
    from atropos_cli.rollout.costs import _length

    half = Message(role="assistant", content="half \ud800", reasoning="half \udc00")
    whole = Message(role="assistant", content="half \ufffd", reasoning="half \ufffd")
    assert _length(half) == _length(whole)
