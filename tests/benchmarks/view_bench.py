"""Cost of opening a big run for browsing: CPU seconds from start to the first page, and of a search through it.

    python tests/benchmarks/view_bench.py [--groups 12500] [--rollouts 8] [--folder DIR]

Writes a run of 100,000 rollouts with tokens (about 0.4 GB, once per folder) and starts `atropos view` on it. "First
page" is the page with its scripts, the run's description and the first 100 groups of the list, the first of them
whole. The baseline reads and parses the whole file once, which a viewer without an index would have to do.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

TEXT = "the sum of both numbers is computed step by step and then checked once more before it is written down"
WORDS = TEXT.split()


def write_run(path: Path, groups: int, rollouts: int) -> None:
    """Groups as `gen` writes them, 166 sampled tokens a rollout on average."""
    rng = random.Random(0)
    texts = []
    for _ in range(64):
        n = rng.randrange(32, 300)
        ids = [rng.randrange(50_000) for _ in range(n)]
        reply = {
            "role": "assistant",
            "content": " ".join(rng.choice(WORDS) for _ in range(n)),
            "finish_reason": "stop",
            "tokens": {"ids": ids, "mask": True, "logprobs": [round(-rng.random(), 4) for _ in ids]},
        }
        texts.append(json.dumps(reply, separators=(",", ":")))
    with path.open("w") as file:
        for g in range(groups):
            prompt = json.dumps([{"role": "user", "content": f"What is {g} + {g}?"}])
            parts = []
            for i in range(rollouts):
                reward = float(rng.random() < 0.4)
                parts.append(
                    f'{{"id":"b-{g}/{i}","task_id":"{g}","messages":{prompt[:-1]},{rng.choice(texts)}],'
                    f'"rewards":{{"exact":{reward}}},"reward":{reward},"stop_reason":"done"}}'
                )
            file.write(
                f'{{"schema_version":1,"group_id":"b-{g}","last":true,"env":"sums","task":{{"id":"{g}","prompt":{prompt}}},'
                f'"rollouts":[{",".join(parts)}],"model":"m"}}\n'
            )


def cpu_of(pid: int) -> float:
    """CPU seconds of a living process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def peak_of(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def get(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        return answer.read()


def first_page(url: str) -> None:
    for name in (
        "",
        "style.css",
        "dom.js",
        "data.js",
        "group.js",
        "app.js",
        "api/run",
        "api/groups?limit=100",
        "api/group?n=0",
    ):
        get(url + name)


def searched(url: str, **query: str) -> int:
    """Search the whole run as the page does; how many groups were found."""
    found, at, total = 0, 0, 1
    while at < total:
        text = "&".join(f"{name}={value}" for name, value in query.items())
        answer = json.loads(get(f"{url}api/groups?limit=1000&from={at}&{text}"))
        found, at, total = found + len(answer["items"]), answer["next"], answer["total"]
    return found


def parse_all(path: Path) -> None:
    from atropos_cli.io.readers import read_records
    from atropos_cli.io.sources import find_sources

    for _ in read_records(find_sources([str(path)])):
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=12_500)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"groups-{options.groups}x{options.rollouts}.jsonl"
        if not path.exists():
            write_run(path, options.groups, options.rollouts)
        size = path.stat().st_size
        print(f"| {options.groups * options.rollouts:,} rollouts, {size / 1e9:.2f} GB | CPU s | wall s | peak RSS MB |")
        print("|---|---|---|---|")
        began = time.monotonic()
        code = "import sys; from atropos_cli.cli.app import main; main()"
        command = [sys.executable, "-c", code, "view", str(path)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            url = server.stdout.readline().strip()
            first_page(url)
            done = cpu_of(server.pid)
            print(f"| first page | {done:.2f} | {time.monotonic() - began:.2f} | {peak_of(server.pid):.0f} |")
            for label, query in (("a word", {"q": "77+%2B+77%3F"}), ("rewards", {"low": "2"})):
                began = time.monotonic()
                found = searched(url, **query)
                spent, done = cpu_of(server.pid) - done, cpu_of(server.pid)
                wall = time.monotonic() - began
                print(f"| search for {label}: {found} found | {spent:.2f} | {wall:.2f} | {peak_of(server.pid):.0f} |")
        finally:
            server.terminate()
            server.wait()
        began, before = time.monotonic(), time.process_time()
        parse_all(path)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        spent, wall = time.process_time() - before, time.monotonic() - began
        print(f"| baseline: parse all | {spent:.2f} | {wall:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
