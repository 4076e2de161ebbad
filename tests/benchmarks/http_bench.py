"""CPU per request of the HTTP clients and of the OpenAI backend, against an instantaneous loopback server.

    python tests/benchmarks/http_bench.py [--requests 2000]

32 requests in flight, 130-byte answers. Counts the CPU of this process only; the server is another one. The
first rows send the same bytes and read the answer with the same JSON parser, so they differ by the client alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

from pydantic_core import from_json, to_json

from atropos_cli.builtin.openai.backend import OpenAIBackend, OpenAIConfig
from atropos_cli.builtin.openai.http import HttpClient
from atropos_cli.sdk import user
from atropos_cli.sdk.backends import GenerateRequest

ANSWER = "The answer is 42. " * 7 + "42.."
QUESTION = "What is 6 * 7? Answer with a number. " * 5
Once = Callable[[], Awaitable[object]]


async def measure(once: Once, requests: int) -> float:
    """CPU milliseconds per call, 32 at a time, after a warm-up."""
    for _ in range(50):
        await once()
    left = iter(range(requests))

    async def worker() -> None:
        for _ in left:
            await once()

    begin = time.process_time()
    await asyncio.gather(*(worker() for _ in range(32)))
    return (time.process_time() - begin) * 1000 / requests


def body(n: int) -> bytes:
    return to_json({"model": "mock-model", "messages": [{"role": "user", "content": QUESTION}], "n": n})


async def with_httpx(url: str, n: int, requests: int) -> float:
    import httpx

    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_keepalive_connections=64)) as client:

        async def once() -> object:
            response = await client.post(
                f"{url}/chat/completions", content=body(n), headers={"Content-Type": "application/json"}
            )
            return from_json(response.content)

        return await measure(once, requests)


async def with_our_client(url: str, n: int, requests: int) -> float:
    client = HttpClient(url, {})

    async def once() -> object:
        return from_json((await client.request("POST", "/v1/chat/completions", body(n), 60.0)).body)

    try:
        return await measure(once, requests)
    finally:
        await client.close()


async def with_backend(url: str, n: int, requests: int, logprobs: str) -> float:
    backend = OpenAIBackend(OpenAIConfig(base_url=(url,)))
    await backend.open()
    request = GenerateRequest(messages=(user(QUESTION),), n=n, logprobs=logprobs, seed=1)
    try:
        return await measure(lambda: backend.generate(request), requests)
    finally:
        await backend.close()


async def table(url: str, requests: int) -> None:
    rows = []
    for n in (1, 8):
        rows.append((f"httpx, n={n}", n, await with_httpx(url, n, requests // 2)))
        rows.append((f"our client, n={n}", n, await with_our_client(url, n, requests)))
        rows.append((f"backend, n={n}", n, await with_backend(url, n, requests, "off")))
        rows.append(
            (f"backend, n={n}, token ids and logprobs", n, await with_backend(url, n, requests // 2, "require"))
        )
    print(f"{'':44} {'CPU ms/request':>15} {'CPU ms/rollout':>15}")
    for name, n, cost in rows:
        print(f"{name:44} {cost:15.3f} {cost / n:15.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=2000)
    args = parser.parse_args()
    command = [sys.executable, "-m", "atropos_authoring.mock_server", "--port", "0", "--flavor", "vllm"]
    with subprocess.Popen([*command, "--reply", ANSWER], stdout=subprocess.PIPE, text=True, env=os.environ) as server:
        assert server.stdout is not None
        try:
            asyncio.run(table(server.stdout.readline().strip(), args.requests))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
