"""The real server of SkyRL, with its JAX backend on this CPU, by launch-skyrl: learning, kill -9 of both, the weights.

ATROPOS_TEST_SKYRL names a Python with skyrl[tinker,jax] (0.3 on Python 3.11, or later). It takes minutes, most of which
JAX compiles; JAX_COMPILATION_CACHE_DIR keeps that for a second time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sums_model
from tinker_support import groups, local_logprobs, metrics

PYTHON = os.environ.get("ATROPOS_TEST_SKYRL", "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PYTHON, reason="ATROPOS_TEST_SKYRL is not set")]
PROGRAM = [sys.executable, "-m", "atropos_cli"]
SERVER = ("--name", "sums", "--engine-python", PYTHON, "--lora-r", "8", "--detach", "--json")


class Place:
    """A folder with the model, and commands in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.model = folder, folder / "model"
        self.env = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "OMP_NUM_THREADS": "1"}

    def atropos(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*PROGRAM, *words], cwd=self.folder, env=self.env, capture_output=True, text=True, check=False, timeout=1800
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    def launch(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.atropos("launch-skyrl", str(self.model), *SERVER).stdout)
        return found

    def grpo(self, url: str, *more: str) -> list[str]:
        task = ("--env", "arithmetic", "--env.prompt-style", "equation", "--env.max-number", "9", "--env.kind", "add")
        size = ("--group-size", "8", "--prompts-per-step", "16", "--max-tokens", "4", "--workers", "64")
        learn = ("--lora-r", "8", "--learning-rate", "3e-3", "--steps", "12", "--save-every", "3")
        server = ("--trainer", "tinker", "--base-url", url, "--model", str(self.model), "--output", "run")
        return ["train", "grpo", *task, *size, *learn, *server, *more]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Stops the server in the end."""
    found = Place(tmp_path_factory.mktemp("skyrl"))
    sums_model.main(found.model)
    yield found
    subprocess.run([*PROGRAM, "launch-skyrl", "--stop", "--name", "sums"], env=found.env, check=False)


def _ends(pid: int) -> None:
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)


def test_trainer_and_server_are_killed_and_the_run_learns(place: Place) -> None:
    record = place.launch()
    assert record["capabilities"]["models"] == [str(place.model)]
    assert not record["urls"][0].endswith("/v1")
    training = subprocess.Popen(
        [*PROGRAM, *place.grpo(record["urls"][0])],
        cwd=place.folder,
        env=place.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    run = place.folder / "run"
    while not (run / "checkpoints" / "step-3" / "tinker.json").exists():
        assert training.poll() is None
        time.sleep(0.2)
    training.send_signal(signal.SIGKILL)
    training.wait()
    os.kill(record["pid"], signal.SIGKILL)  # the supervisor: its programs end with it
    _ends(record["pid"])
    again = place.launch()
    place.atropos(*place.grpo(again["urls"][0], "--resume"))
    rewards = [row["reward"] for row in metrics(run)]
    assert len(rewards) == 12
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.15, rewards
    assert len({group["group_id"] for group in groups(run)}) == len(groups(run)) == 12 * 16
    first = metrics(run)[0]
    assert first["sampling/sampling_logp_difference/mean"] < 1e-2


def test_the_adapter_in_local_says_what_the_server_says(place: Place) -> None:
    import tinker

    (record,) = json.loads(place.atropos("launch-skyrl", "--status", "--json").stdout)
    state = json.loads((place.folder / "run" / "model" / "tinker.json").read_text())
    service = tinker.ServiceClient(base_url=record["urls"][0], api_key="tml-none")
    client = service.create_sampling_client(model_path=state["sampler"])
    tokenizer_ids = [sums_model.WORDS.index(letter) for letter in "7+8="]
    asked = tinker.SamplingParams(max_tokens=4, seed=3, stop=[1])
    (found,) = client.sample(tinker.ModelInput.from_ints(tokenizer_ids), 1, asked).result().sequences
    here = local_logprobs(place.folder / "run" / "model", tokenizer_ids, found.tokens)
    assert here == pytest.approx(found.logprobs, abs=2e-3)


def test_sft(place: Place) -> None:
    (record,) = json.loads(place.atropos("launch-skyrl", "--status", "--json").stdout)
    rows = [{"prompt": f"{a}+{b}=", "completion": str(a + b)} for a in range(10) for b in range(10)]
    (place.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--trainer", "tinker", "--base-url", record["urls"][0], "--model", str(place.model), "--output", "sft")
    learn = ("--lora-r", "8", "--learning-rate", "3e-3", "--steps", "12", "--prompts-per-step", "64")
    place.atropos("train", "sft", "--data", "rows.jsonl", *words, *learn)
    losses = [row["loss"] for row in metrics(place.folder / "sft")]
    assert losses[-1] < 0.7 * losses[0], losses
