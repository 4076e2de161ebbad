"""What the local backend does per CPU second. Prints a table; needs torch and the smollm2 model.

    python tests/benchmarks/throughput.py [MODEL]

Rows: loading; decoding with 1, 8 and 32 concurrent requests of different 500-token prompts; the same
8 prompts through transformers' own generate() as a baseline; a conversation of several turns with
and without kept prefixes; scoring. CPU seconds of the whole process, peak memory so far.
"""

import asyncio
import random
import resource
import sys
import time

from atropos_local.backend import LocalBackend, LocalConfig

from atropos_cli.sdk.backends import GenerateRequest, Sampling

PROMPT, NEW, TURNS, REPLY = 500, 64, 6, 32


def report(what: str, seconds: float, tokens: int | None = None) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    rate = f"{tokens / seconds:10.1f}" if tokens else " " * 10
    print(f"{what:58s}{seconds:9.2f}{rate}{peak:8.2f}", flush=True)


async def opened(model: str, **options: object) -> LocalBackend:
    backend = LocalBackend(LocalConfig(**options), model=model)  # type: ignore[arg-type]
    await backend.open()
    return backend


def prompts(count: int, length: int, seed: int) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    return [tuple(rng.randrange(1000, 40000) for _ in range(length)) for _ in range(count)]


def request(ids: tuple[int, ...], tokens: int, seed: int) -> GenerateRequest:
    return GenerateRequest(prompt_ids=ids, seed=seed, sampling=Sampling(max_tokens=tokens))


async def decode(model: str, count: int) -> None:
    backend = await opened(model, prefix_cache_tokens=0)
    batch = backend._scheduler.batch  # type: ignore[union-attr]
    batch.end_ids = frozenset()  # every sample runs to its full length  # type: ignore[union-attr]
    ids = prompts(count, PROMPT, count)
    start = time.process_time()
    await asyncio.gather(*(backend.generate(request(prompt, 1, 0)) for prompt in ids))
    prefill = time.process_time() - start
    report(f"prefill {count} x {PROMPT}: prompt tokens", prefill, count * PROMPT)
    start = time.process_time()
    await asyncio.gather(*(backend.generate(request(prompt, NEW, 0)) for prompt in ids))
    both = time.process_time() - start
    report(f"decode {count} x {NEW} (prefill taken off): new tokens", both - prefill, count * (NEW - 1))
    report(f"generate {count} x ({PROMPT} + {NEW}): new tokens", both, count * NEW)
    await backend.close()


async def baseline(model: str) -> None:
    import torch

    backend = await opened(model)
    network = backend._scheduler.batch.decoder.model  # type: ignore[union-attr]
    ids = torch.tensor(prompts(8, PROMPT, 8))
    start = time.process_time()
    network.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, min_new_tokens=NEW, max_new_tokens=NEW)
    report(f"transformers generate(), 8 x ({PROMPT} + {NEW}), one batch", time.process_time() - start, 8 * NEW)
    start = time.process_time()
    network.generate(
        ids[:1], attention_mask=torch.ones_like(ids[:1]), do_sample=True, min_new_tokens=NEW, max_new_tokens=NEW
    )
    report(f"transformers generate(), 1 x ({PROMPT} + {NEW})", time.process_time() - start, NEW)
    await backend.close()


async def conversations(model: str, kept: int | None) -> None:
    backend = await opened(model, prefix_cache_tokens=kept)
    rng = random.Random(1)

    async def talk(number: int) -> None:
        ids = prompts(1, PROMPT, number)[0]
        for turn in range(TURNS):
            answer = await backend.generate(request(ids, REPLY, turn))
            span = answer.completions[0].message.tokens
            assert span is not None
            ids = (*ids, *span.ids, *(rng.randrange(1000, 40000) for _ in range(60)))

    start = time.process_time()
    await asyncio.gather(*(talk(number) for number in range(8)))
    batch = backend._scheduler.batch  # type: ignore[union-attr]
    shared = batch.reused_tokens / (batch.reused_tokens + batch.computed_tokens)  # type: ignore[union-attr]
    name = "none kept" if kept == 0 else f"{shared:.0%} of positions reused"
    report(f"8 conversations, {TURNS} turns from {PROMPT} tokens on, {name}", time.process_time() - start)
    await backend.close()


async def scoring(model: str) -> None:
    backend = await opened(model, prefix_cache_tokens=0)
    pairs = [(ids[:PROMPT], ids[PROMPT:]) for ids in prompts(8, PROMPT + NEW, 5)]
    start = time.process_time()
    await asyncio.gather(*(backend.score(prefix, continuation) for prefix, continuation in pairs))
    report(f"score 8 x ({PROMPT} + {NEW}): tokens", time.process_time() - start, 8 * (PROMPT + NEW))
    await backend.close()


async def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
    print(f"{'':58s}{'CPU s':>9s}{'per CPU s':>10s}{'GB peak':>8s}")
    start = time.process_time()
    backend = await opened(model)
    report("load, imports included (cached when run before)", time.process_time() - start)
    await backend.close()
    for count in (1, 8, 32):
        await decode(model, count)
    await baseline(model)
    for kept in (0, None):
        await conversations(model, kept)
    await scoring(model)


if __name__ == "__main__":
    asyncio.run(main())
