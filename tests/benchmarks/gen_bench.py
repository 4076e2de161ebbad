"""CPU per rollout and peak memory of `gen` against an instantaneous loopback server.

    python tests/benchmarks/gen_bench.py [--rollouts 16000] [--long 200000]   (https needs openssl)

One turn, 32 workers, group size 8, 130-byte answers, exact-match reward, groups written to disk. Counts the CPU
of our process only (the server is another process); the marginal cost is the difference of two run lengths,
so start-up does not count. The bare-client rows send the same requests and read the answers with json, with
no rollout around them: they are the HTTP client's own share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ANSWER = "The answer is 42. " * 7 + "42."
CASES = {
    # name: (server, logprobs, one request a rollout)
    "n=8 in one request": ("openai", "off", False),
    "n=8, token ids, masks, logprobs": ("vllm", "auto", False),
    "one request a rollout": ("openai", "off", True),
    "one request a rollout, https": ("https", "off", True),
    "one request a rollout, token ids, logprobs": ("vllm", "auto", True),
}
CLIENTS = (
    ("httpx", 1, "openai"),
    ("httpx", 1, "https"),
    ("ours", 1, "openai"),
    ("ours", 1, "https"),
    ("ours", 8, "openai"),
)


def __getattr__(name: str):
    """The environments of this benchmark, made on first use so that the parent imports nothing."""
    if name not in ("Shared", "Single"):
        raise AttributeError(name)
    from atropos_cli.sdk import Environment, Message, SingleTurn, Task, TaskStream, reward, user

    @reward
    def exact(task, rollout) -> float:
        return float(rollout.text.strip() == task.answer)

    class Own(SingleTurn):
        """Each rollout sees a prompt of its own, so that n samples cannot share a request."""

        count = 0

        def reset(self):
            Own.count += 1
            return [Message(role="user", content=f"{self.task.prompt[0].text} (try {Own.count})")]

    class Shared(Environment):
        name = "shared"
        rewards = (exact,)

        def tasks(self, split: str) -> TaskStream:
            return TaskStream(
                lambda i: Task(id=str(i), prompt=(user(f"Task {i}: what is six times seven?"),), answer="42")
            )

    class Single(Shared):
        name = "single"

        def episode(self, task: Task) -> SingleTurn:
            return Own(task)

    return Shared if name == "Shared" else Single


def child(case: str, rollouts: int, url: str) -> None:
    from atropos_cli.config.settings import GenSettings
    from atropos_cli.domain.plan import Execution
    from atropos_cli.plugins.discovery import get_registry
    from atropos_cli.rollout.planner import build_plan
    from atropos_cli.rollout.runner import run_gen

    _, logprobs, single = CASES[case]
    settings = GenSettings(
        backend="openai",
        backend_options={"base_url": [url]},
        limit=rollouts // 8,
        logprobs=logprobs,
        execution=Execution(workers=32),
    )
    environment = f"{Path(__file__).resolve()}:{'Single' if single else 'Shared'}"
    with tempfile.TemporaryDirectory() as folder:
        registry = get_registry()
        summary = run_gen(
            build_plan(settings, environment, {}, registry), folder=Path(folder) / "run", registry=registry
        )
        size = (Path(folder) / "run" / "groups.jsonl").stat().st_size
    assert summary.rollouts == rollouts, summary
    assert summary.rollouts_failed == 0, summary
    usage = resource.getrusage(resource.RUSAGE_SELF)
    row = {"cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss / 1024, "in_flight": summary.max_in_flight}
    print(json.dumps({**row, "bytes": size}))


def bare(client: str, requests: int, url: str, n: int) -> None:
    """The same requests through a client alone."""
    body = {
        "model": "mock-model",
        "messages": [{"role": "user", "content": "Task 1: what is six times seven?"}],
        "n": n,
    }

    async def main() -> None:
        left = iter(range(requests))
        if client == "httpx":
            import httpx

            async with httpx.AsyncClient() as session:

                async def work() -> None:
                    for _ in left:
                        (await session.post(f"{url}/chat/completions", json=body)).json()

                await asyncio.gather(*(work() for _ in range(32)))
        else:
            from atropos_cli.builtin.openai.http import HttpClient

            session = HttpClient(url, {})

            async def work() -> None:
                for _ in left:
                    response = await session.request("POST", "/chat/completions", json.dumps(body).encode(), 60.0)
                    json.loads(response.body)

            await asyncio.gather(*(work() for _ in range(32)))
            await session.close()

    asyncio.run(main())
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss / 1024}))


def measure(*arguments: str) -> dict[str, float]:
    out = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(out.stderr)
    return json.loads(out.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=16_000)
    parser.add_argument("--long", type=int, default=0, help="also run this many rollouts and compare the memory")
    parser.add_argument("--child", nargs=3)
    parser.add_argument("--bare", nargs=4)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], int(options.child[1]), options.child[2])
        return
    if options.bare:
        bare(options.bare[0], int(options.bare[1]), options.bare[2], int(options.bare[3]))
        return
    servers = {}
    with tempfile.TemporaryDirectory() as folder:
        certificate = make_certificate(Path(folder))
        os.environ["SSL_CERT_FILE"] = str(certificate)
        for name in ("openai", "vllm", "https"):
            command = [sys.executable, "-m", "atropos_authoring.mock_server", "--port", "0", "--reply", ANSWER]
            command += ["--certificate", str(certificate)] if name == "https" else ["--flavor", name]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert server.stdout is not None
            servers[name] = (server, server.stdout.readline().strip())
        report(options, servers)


def make_certificate(folder: Path) -> Path:
    """One PEM file with a certificate of this machine that signs itself, and its key."""
    file = folder / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key", "-out", folder / "certificate"]
    subprocess.run(command, check=True, capture_output=True)
    file.write_bytes((folder / "certificate").read_bytes() + (folder / "key").read_bytes())
    return file


def report(options: argparse.Namespace, servers: dict[str, tuple[subprocess.Popen[str], str]]) -> None:
    try:
        few, many = options.rollouts // 8, options.rollouts
        print(
            "| `gen`, 32 workers | CPU ms per rollout | rollouts per CPU s | peak RSS MB | max in flight "
            "| bytes a rollout |"
        )
        print("|---|---|---|---|---|---|")
        for case, (flavor, _, _) in CASES.items():
            url = servers[flavor][1]
            small, big = measure("--child", case, str(few), url), measure("--child", case, str(many), url)
            cost = (big["cpu"] - small["cpu"]) / (many - few)
            print(
                f"| {case} | {cost * 1e3:.3f} | {1 / cost:,.0f} | {big['rss']:.0f} | {big['in_flight']} "
                f"| {big['bytes'] / many:,.0f} |",
                flush=True,
            )
        print("\n| client alone | CPU ms per request |\n|---|---|")
        for client, n, name in CLIENTS:
            url = servers[name][1]
            small, big = (measure("--bare", client, str(count), url, str(n)) for count in (500, 4500))
            print(
                f"| {client}, n={n}, {url.partition(':')[0]} | {(big['cpu'] - small['cpu']) / 4000 * 1e3:.3f} |",
                flush=True,
            )
        if options.long:
            case = "n=8 in one request"
            row = measure("--child", case, str(options.long), servers["openai"][1])
            print(f"\npeak RSS of {options.long:,} rollouts: {row['rss']:.0f} MB, {row['cpu']:.1f} CPU s in all")
    finally:
        for server, _ in servers.values():
            server.terminate()


if __name__ == "__main__":
    began = time.monotonic()
    main()
