"""Cost of the converters on a big file: CPU per group without the fixed cost, peak memory.

    python tests/benchmarks/convert_bench.py [--megabytes 1000] [--folder DIR] [--only filter]
    python tests/benchmarks/convert_bench.py --chats 2000 [--tokenizer smollm2]

Writes groups of 8 rollouts of 166 tokens (atroposlib's format and ours; once per folder), then runs each
command on the whole file and on a file of one group: the difference is the marginal cost. Baseline:
atroposlib's converters take about 1.0 ms of CPU for such a group (0.6 to 1.1 by mode; fixed cost left out).

With --chats: sft-gen --format tokens on chats of ten turns, in tokens per CPU second; atroposlib's
tokenize_for_trainer made 44,000 of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BASELINE_MS = 1.0
ROLLOUTS, PROMPT, COMPLETION = 8, 36, 130

COMMANDS: dict[str, tuple[str, ...]] = {
    "filter, nothing dropped": ("filter", "{input}", "-o", "{output}", "--min-score", "0"),
    "filter, best of n": ("filter", "{input}", "-o", "{output}", "--best-of-n"),
    "filter, threshold and lengths": (
        *("filter", "{input}", "-o", "{output}", "--above", "0.5", "--drop-equal", "--max-words", "500"),
    ),
    "filter, exact duplicates": ("filter", "{input}", "-o", "{output}", "--dedup", "exact"),
    "filter, where": ("filter", "{input}", "-o", "{output}", "--where", "score > 0.5 and len(text) < 2000"),
    "sft-gen, messages, best": ("sft-gen", "{input}", "-o", "{output}"),
    "sft-gen, messages, all above 0": ("sft-gen", "{input}", "-o", "{output}", "--select", "all", "--above", "0"),
    "sft-gen, stored tokens": ("sft-gen", "{input}", "-o", "{output}", "--format", "tokens"),
    "dpo-gen, best and worst": ("dpo-gen", "{input}", "-o", "{output}"),
    "dpo-gen, up to 4 of all pairs": ("dpo-gen", "{input}", "-o", "{output}", "--policy", "all"),
}
"""Rows of the table. Other converters add theirs here."""


def write_atropos(path: Path, size: int) -> int:
    """Groups as atroposlib's `process` writes them; returns their number."""
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(5000)]
    count = 0
    with path.open("w") as file:
        while file.tell() < size:
            prompt = [rng.randrange(8000) for _ in range(PROMPT)]
            replies = [[rng.randrange(8000) for _ in range(COMPLETION)] for _ in range(ROLLOUTS)]
            chat = [{"role": "system", "content": "Be exact."}, {"role": "user", "content": f"Task {count}"}]
            group = {
                "tokens": [prompt + reply for reply in replies],
                "masks": [[-100] * PROMPT + reply for reply in replies],
                "scores": [rng.choice([0.0, 0.5, 1.0]) for _ in replies],
                "messages": [
                    [*chat, {"role": "assistant", "content": " ".join(rng.choices(words, k=100))}] for _ in replies
                ],
                "ref_logprobs": None,
                "overrides": None,
                "group_overrides": None,
            }
            file.write(json.dumps(group) + "\n")
            count += 1
    return count


def write_native(source: Path, path: Path) -> None:
    """The same groups in our own format."""
    from atropos_cli.io.formats.native import native_group
    from atropos_cli.io.jsonvalue import dump
    from atropos_cli.io.readers import read_records
    from atropos_cli.io.sources import find_sources

    with path.open("wb") as file:
        for record in read_records(find_sources([str(source)])):
            file.write(dump(native_group(record)) + b"\n")


def run(arguments: list[str]) -> tuple[float, float]:
    """(CPU seconds, peak memory in MB) of one call of the program."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from atropos_cli.cli.app import main; main()", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}:\n{errors}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def write_chats(path: Path, count: int) -> None:
    """Conversations of ten turns, about 80 tokens a message."""
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 6))) for _ in range(5000)]
    with path.open("w") as file:
        for i in range(count):
            texts = [" ".join(rng.choices(words, k=40)) for _ in range(20)]
            turns = [{"role": "assistant" if k % 2 else "user", "content": f"{text}."} for k, text in enumerate(texts)]
            file.write(json.dumps({"id": str(i), "messages": turns}) + "\n")


TEMPLATES = Path(__file__).resolve().parents[1] / "fixtures" / "templates"


def tokenised(folder: Path, chats: int, tokenizer: str) -> None:
    """Tokens per CPU second of whole chats, for several templates; every reply is trained on."""
    path, output = folder / f"chats-{chats}.jsonl", folder / "out.jsonl"
    write_chats(path, chats)
    print(f"{'':32}{'CPU s':>8}{'fixed':>8}{'tokens':>10}{'tokens/CPU s':>14}{'x 44,000':>10}{'peak MB':>9}")
    for name in ("chatml", "qwen2_5", "qwen3", "hermes"):
        words = ["sft-gen", "--format", "tokens", "--tokenizer", tokenizer, "-o", str(output), "--overwrite"]
        words += ["--chat-template", str(TEMPLATES / f"{name}.jinja")]
        (fixed, _), (cpu, peak) = (run([*words, str(source)]) for source in (head(path), path))
        card = json.loads(output.with_name("out.jsonl.card.json").read_text())
        tokens = card["counts"]["tokens"]["tokens"]
        rate = tokens / (cpu - fixed)
        print(f"{name:32}{cpu:8.1f}{fixed:8.2f}{tokens:10}{rate:14,.0f}{rate / 44_000:10.1f}{peak:9.0f}")


def plain_json(path: Path) -> float:
    """Milliseconds of CPU for the standard library to read one group: how fast this machine is just now."""
    with path.open("rb") as file:
        lines = [file.readline() for _ in range(500)]
    started = time.process_time()
    for line in lines:
        json.loads(line)
    return (time.process_time() - started) / len(lines) * 1000


def head(path: Path) -> Path:
    """A file with the first group only."""
    one = path.with_name(path.stem + "-one.jsonl")
    with path.open() as file:
        one.write_text(file.readline())
    return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--format", choices=("atropos", "native"), default="atropos")
    parser.add_argument("--chats", type=int, help="tokenise so many chats instead")
    parser.add_argument("--tokenizer", default="smollm2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if options.chats:
            tokenised(folder, options.chats, options.tokenizer)
            return
        path = folder / f"groups-{options.megabytes}.jsonl"
        if not path.exists():
            write_atropos(path, options.megabytes * 1_000_000)
        if options.format == "native":
            source, path = path, folder / f"native-{options.megabytes}.jsonl"
            if not path.exists():
                write_native(source, path)
        with path.open("rb") as file:
            groups = sum(1 for _ in file)
        print(f"{groups} groups of {ROLLOUTS} x {PROMPT + COMPLETION} tokens, {path.stat().st_size / 1e6:.0f} MB")
        print(f"json.loads of a group takes {plain_json(path):.3f} ms here and now")
        print(f"{'':32}{'CPU s':>8}{'fixed':>8}{'ms/group':>10}{'x less':>8}{'peak MB':>9}")
        for name, words in COMMANDS.items():
            if options.only not in name:
                continue
            output = folder / "out.jsonl"
            costs = []
            for source in (head(path), path):
                output.unlink(missing_ok=True)
                filled = [word.format(input=source, output=output) for word in words]
                costs.append(run(filled))
            (fixed, _), (cpu, peak) = costs
            each = (cpu - fixed) / groups * 1000
            print(f"{name:32}{cpu:8.1f}{fixed:8.2f}{each:10.3f}{BASELINE_MS / each:8.1f}{peak:9.0f}")


if __name__ == "__main__":
    main()
