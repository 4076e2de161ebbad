"""CPU of the trajectory server: POST and GET of a group, and a restart with a long queue.

    python plugins/atropos-serve/tests/benchmarks/queue_bench.py [--groups 4000] [--queued 100000] [--python PYTHON]

A group is 8 sequences of 166 tokens with their messages (23 kB). CPU is the server process's, user and system, from
/proc. --python: of a virtual environment with atroposlib, whose run-api is measured the same way.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TICK = os.sysconf("SC_CLK_TCK")
SIZE = 8
REGISTRATION = {
    "wandb_group": "",
    "wandb_project": "",
    "batch_size": 8 * SIZE,
    "max_token_len": 4096,
    "checkpoint_dir": "",
    "save_checkpoint_interval": 0,
    "starting_step": 0,
    "num_steps": 10,
}
ENV = {"max_token_length": 4096, "desired_name": "bench", "weight": 1.0, "group_size": SIZE}


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def megabytes(pid: int, key: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def group(tag: int, tokens: int = 166, prompt: int = 36) -> dict[str, Any]:
    """Ids of a vocabulary of 50,000; the words of the messages are as long as the tokens would make them."""
    draw = random.Random(tag)
    rows = [[draw.randrange(50_000) for _ in range(tokens)] for _ in range(SIZE)]
    question = {"role": "user", "content": f"List twelve prime numbers, question number {tag}."}
    answer = " ".join(draw.choice(("seven", "eleven", "prime", "because", "it", "is")) for _ in range(128))
    return {
        "tokens": rows,
        "masks": [[-100] * prompt + row[prompt:] for row in rows],
        "scores": [float(place) for place in range(SIZE)],
        "messages": [[question, {"role": "assistant", "content": answer}] for _ in rows],
        "env_id": 0,
    }


class Client:
    """One connection, or with close a new one for each request."""

    def __init__(self, port: int, *, close: bool) -> None:
        self._port, self._close = port, close
        self._open = http.client.HTTPConnection("127.0.0.1", port)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            named["Content-Type"] = "application/json"
        if self._close:
            named["Connection"] = "close"
        self._open.request(method, path, body, named)
        text = self._open.getresponse().read()
        if self._close:
            self._open.close()
        return json.loads(text)

    def start(self, **changes: Any) -> None:
        self.ask("POST", "/register", json.dumps(REGISTRATION | changes).encode())
        self.ask("GET", "/batch")
        self.ask("POST", "/register-env", json.dumps(ENV).encode())


@contextlib.contextmanager
def served(command: list[str], port: int) -> Iterator[int]:
    """The pid of a server that answers."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while True:
                with contextlib.suppress(OSError, ValueError):
                    Client(port, close=True).ask("GET", "/status")
                    break
                time.sleep(0.05)
            yield server.pid
        finally:
            server.kill()


def ours(folder: Path, port: int) -> list[str]:
    return [sys.executable, "-P", "-m", "atropos_cli", "serve", str(folder), "--port", str(port)]


def requests(command: list[str], port: int, groups: int) -> None:
    """Post all groups, then take them; with one connection and with one for each request, plain and gzipped."""
    plain = [json.dumps(group(tag)).encode() for tag in range(64)]
    zipped = [gzip.compress(body) for body in plain]
    with served(command, port) as pid:
        Client(port, close=True).start()
        for close, bodies in ((False, plain), (True, plain), (True, zipped)):
            client = Client(port, close=close)
            coding = {"Content_Encoding": "gzip"} if bodies is zipped else {}
            before = cpu(pid)
            for place in range(groups):
                client.ask("POST", "/scored_data", bodies[place % 64], Idempotency_Key=f"{before}/{place}", **coding)
            posted = cpu(pid)
            taken = 0
            while rows := client.ask("GET", "/batch")["batch"]:
                taken += len(rows)
            after = cpu(pid)
            post, get = 1000 * (posted - before) / groups, 1000 * (after - posted) / taken
            how = ("a connection each" if close else "one connection") + (", gzip" if coding else "")
            print(
                f"{how:26} POST {post:.3f} + GET {get:.3f} = {post + get:.3f} ms, peak {megabytes(pid, 'VmHWM'):.0f} MB"
            )


def restart(folder: Path, port: int, queued: int) -> None:
    """Fill the queue with small groups, kill the server, and start it again."""
    rows = [group(tag, tokens=8, prompt=4) for tag in range(100)]
    body = json.dumps(rows).encode()
    with served(ours(folder, port), port) as pid:
        client = Client(port, close=False)
        client.start()
        for place in range(queued // len(rows)):
            client.ask("POST", "/scored_data_list", body)
            if (place + 1) * len(rows) in (queued // 100, queued // 2, queued):
                print(f"{(place + 1) * len(rows):>9,} queued: {megabytes(pid, 'VmRSS'):.0f} MB")
    with served(ours(folder, port), port) as pid:
        size = Client(port, close=True).ask("GET", "/status")["queue_size"]
        print(f"{size:>9,} after kill -9: ready in {cpu(pid):.2f} CPU s, {megabytes(pid, 'VmRSS'):.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=4000)
    parser.add_argument("--queued", type=int, default=100_000)
    parser.add_argument("--port", type=int, default=9931)
    parser.add_argument("--python", help="of a virtual environment with atroposlib")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if args.python:
            words = ["--host", "127.0.0.1", "--port", str(args.port)]
            requests([args.python, str(Path(args.python).parent / "run-api"), *words], args.port, args.groups)
            return
        requests(ours(Path(made, "requests"), args.port), args.port, args.groups)
        with served(ours(Path(made, "empty"), args.port), args.port) as pid:
            print(f"empty: ready in {cpu(pid):.2f} CPU s, {megabytes(pid, 'VmRSS'):.0f} MB")
        restart(Path(made, "restart"), args.port, args.queued)


if __name__ == "__main__":
    main()
