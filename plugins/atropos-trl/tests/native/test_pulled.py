"""`serve`, `gen --to` and `train grpo --from` as three processes; generator and trainer are killed on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_live import ENVIRONMENT

pytest.importorskip("atropos_local")
pytest.importorskip("atropos_serve")
pytestmark = pytest.mark.slow

STEPS, PROMPTS, SIZE = 6, 2, 4


class Processes:
    """Programs of one test; what they say is in a file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *words: str) -> subprocess.Popen[str]:
        with self.log(name).open("ab") as errors:
            self._running[name] = subprocess.Popen(
                ["env", "OMP_NUM_THREADS=1", sys.executable, "-P", "-m", "atropos_cli", *words],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        return self._running[name]

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        assert process.poll() is None, self.log(name).read_text()
        process.kill()
        self._over(process)

    def ends(self, name: str) -> None:
        process = self._running.pop(name)
        code = process.wait(timeout=600)
        self._over(process)
        assert code == 0, self.log(name).read_text()

    def close(self) -> None:
        for process in self._running.values():
            process.kill()
            self._over(process)

    @staticmethod
    def _over(process: subprocess.Popen[str]) -> None:
        process.wait(timeout=60)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    made = Processes(tmp_path)
    yield made
    made.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def steps_done(run: Path) -> int:
    return len([row for row in lines(run / "metrics.jsonl") if row.get("kind") == "train"])


def test_generator_and_trainer_are_killed_and_every_token_is_of_the_weights_it_names(
    tiny: Path, processes: Processes, tmp_path: Path
) -> None:
    served = processes.start("serve", "serve", "queue", "--port", "0")
    assert served.stdout is not None
    url = served.stdout.readline().strip()
    sampling = ("--model", str(tiny), "--group-size", str(SIZE), "--max-tokens", "8", "--temperature", "0.9")
    gen = ("gen", "./env.py:Letters", *sampling, "--off-policy", "1", "--workers", "2", "--to", url, "-o", "gen")
    sizes = ("--steps", str(STEPS), "--prompts-per-step", str(PROMPTS), "--save-every", "1")
    train = ("train", "grpo", "--from", url, *sampling, *sizes, "--trainer", "native", "--learning-rate", "0.01")
    train += ("--keep-checkpoints", str(STEPS), "-o", "run")
    run = tmp_path / "run"
    processes.start("gen", *gen)
    processes.start("train", *train)
    until(lambda: steps_done(run) >= 3, "three steps")
    processes.kill("gen")
    processes.start("gen", *gen, "--resume")
    processes.kill("train")
    processes.start("train", *train, "--resume")
    processes.ends("train")
    rows = lines(run / "metrics.jsonl")
    assert [row["step"] for row in rows if row["kind"] == "train"] == list(range(1, STEPS + 1))
    assert not (run / "weights").exists()
    trained = lines(run / "groups.jsonl")
    names = [row["task"]["id"].partition("/")[2] for row in trained]
    assert len(names) == STEPS * PROMPTS
    assert len(set(names)) == len(names)
    assert set(names) <= {row["group_id"] for row in lines(tmp_path / "gen" / "groups.jsonl")}
    check_versions(trained, run, tiny)


def check_versions(groups: list[dict[str, Any]], run: Path, tiny: Path) -> None:
    """The log-probabilities of a span are those of the checkpoint whose version it names, and of no other one."""
    import torch
    from transformers import AutoModelForCausalLM

    seen: set[int] = set()
    models: dict[int, Any] = {}
    for message in (m for group in groups for rollout in group["rollouts"] for m in rollout["messages"]):
        span = message.get("tokens")
        if span is None or not any(span["mask"]):
            continue
        version = span["version"]
        place = run / "checkpoints" / f"step-{version}" if version else tiny
        if not place.exists():
            continue
        seen.add(version)
        if version not in models:
            models[version] = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
        with torch.no_grad():
            logits = models[version](input_ids=torch.tensor([span["ids"]])).logits[0, :-1] / 0.9
        values = torch.log_softmax(logits, -1)[range(len(span["ids"]) - 1), span["ids"][1:]].tolist()
        for on, stored, found in zip(span["mask"][1:], span["logprobs"][1:], values, strict=True):
            if on:
                assert stored == pytest.approx(found, abs=2e-3), f"version {version}"
    assert len(seen) > 1, "the generator never took new weights"


def test_trl_trains_on_batches_of_a_server(tiny: Path, processes: Processes, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    import httpx

    served = processes.start("serve", "serve", "queue", "--port", "0")
    assert served.stdout is not None
    url = served.stdout.readline().strip()
    with httpx.Client(base_url=url, timeout=30) as client:
        for number in range(4):
            tokens = [[3, 4 + number, 5, 6 + place] for place in range(SIZE)]
            group = {
                "tokens": tokens,
                "masks": [[-100, -100, *ids[2:]] for ids in tokens],
                "scores": [float(place % 2) for place in range(SIZE)],
                "inference_logprobs": [[1.0, 1.0, -3.0, -3.1]] * SIZE,
            }
            assert client.post("/scored_data", json=group).json() == {"status": "received"}
    sizes = ("--group-size", str(SIZE), "--prompts-per-step", "2", "--max-tokens", "4", "--steps", "2")
    model = ("--model", str(tiny), "--trainer", "trl", "--learning-rate", "0.01", "--temperature", "1")
    processes.start("train", "train", "grpo", "--from", url, *model, *sizes, "-o", "run")
    processes.ends("train")
    rows = [row for row in lines(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "train"]
    assert [row["reward"] for row in rows] == [0.5, 0.5]
    assert all(row["grad_norm"] > 0 and row["batch/other_weights"] == 1 for row in rows)
    assert all(0.5 < row["importance"] <= 2 for row in rows)
