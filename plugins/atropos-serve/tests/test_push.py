"""`gen --to URL`: every stored group reaches the server once, and the run waits for the trainer."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve_support import REGISTRATION, Server, free_port

GEN = ("gen", "arithmetic", "--backend", "scripted", "--backend.replies", "Answer: 7", "--group-size", "4")
SEED = int(os.environ.get("ATROPOS_TEST_SEED", "17"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "queue")
    yield made
    made.stop()


@contextmanager
def trainer(url: str, **changes: Any) -> Iterator[httpx.Client]:
    """A client that has registered and asked for its first batch."""
    with httpx.Client(base_url=url, timeout=30) as client:
        client.post("/register", json={**REGISTRATION, **changes})
        client.get("/batch")
        yield client


def start(run: Path, url: str, *words: str, limit: int = 24) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "atropos_cli", *GEN, "--output", str(run), "--to", url]
    options = ["--backend.token-ids", "--limit", str(limit), *words]
    with run.with_suffix(".stderr").open("ab") as errors:
        return subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=errors, text=True)


def ends(process: subprocess.Popen[str], run: Path) -> int:
    try:
        return process.wait(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(run.with_suffix(".stderr").read_text()) from None


def received(client: httpx.Client, count: int) -> list[str]:
    """The ids of `count` groups, as a trainer gets them."""
    found: list[str] = []
    end = time.monotonic() + 120
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} groups"
        batch = client.get("/batch").json()["batch"]
        found += [group["group_overrides"]["group_id"] for group in batch or ()]
        if batch is None:
            time.sleep(0.05)
    return found


def stored(run: Path) -> list[str]:
    lines = (run / "groups.jsonl").read_text().splitlines()
    return [json.loads(line)["group_id"] for line in lines]


def test_every_group_arrives_with_tokens_and_logprobs(server: Server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with trainer(server.url) as client:
        process = start(run, server.url)
        group = None
        while group is None:
            batch = client.get("/batch").json()["batch"]
            group = batch[0] if batch else None
            time.sleep(0.05)
        found = [one["group_overrides"]["group_id"] for one in batch] + received(client, 24 - len(batch))
    assert ends(process, run) == 0, run.with_suffix(".stderr").read_text()
    assert sorted(found) == sorted(stored(run))
    masks, tokens = group["masks"][0], group["tokens"][0]
    prompt = next(place for place, mask in enumerate(masks) if mask != -100)
    assert 0 < prompt < len(tokens)
    assert masks[prompt:] == tokens[prompt:]
    assert [value == 1.0 for value in group["inference_logprobs"][0]] == [mask == -100 for mask in masks]
    assert group["generation_params"] == {"temperature": 1.0}


def test_the_run_waits_for_the_trainer(server: Server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run, server.url, "--off-policy", "1", "--workers", "1", limit=60)
    time.sleep(5)
    assert not (run / "groups.jsonl").exists() or not stored(run)
    with trainer(server.url) as client:
        end = time.monotonic() + 60
        while client.get("/status").json()["queue_size"] < 4 and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(3)
        assert 4 <= len(stored(run)) <= 4 + 1 + 8  # one batch of 4 groups, and the groups that were open
        assert "no more start until the trainer takes some" in run.with_suffix(".stderr").read_text()
        assert len(received(client, 60)) == 60
    assert ends(process, run) == 0


def test_held_out_tasks_are_evaluated_between_steps_and_pushed_nowhere(server: Server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("--eval-every", "2", "--eval-limit", "6", "--off-policy", "1")
    with trainer(server.url) as client:
        process = start(run, server.url, *words)
        found = received(client, 16)
        process.terminate()
        assert ends(process, run) == 130
        first = sorted(path.name for path in (run / "evals").iterdir())
        assert {"step-0.jsonl", "arithmetic-step-0.json"} <= set(first)
        process = start(run, server.url, *words, "--resume")
        found += received(client, 24 - len(found))
        assert ends(process, run) == 0, run.with_suffix(".stderr").read_text()
    assert sorted(found) == sorted(stored(run))
    kept = sorted(int(path.stem.partition("-")[2]) for path in (run / "evals").glob("step-*.jsonl"))
    assert [step // 2 for step in kept] == sorted({step // 2 for step in kept})  # each once, resumed or not
    assert kept[0] == 0
    assert kept[-1] >= 2
    groups = [json.loads(line) for line in (run / "evals" / "step-0.jsonl").read_text().splitlines()]
    assert len(groups) == 6
    assert not {group["group_id"] for group in groups} & set(found)
    counted = json.loads((run / "evals" / "arithmetic-step-0.json").read_text())
    right = sum(group["rollouts"][0]["reward"] for group in groups) / 6
    assert (counted["split"], counted["tasks"], counted["accuracy"]["value"]) == ("test", 6, right)
    assert "step 0: accuracy" in run.with_suffix(".stderr").read_text()


def test_an_evaluation_needs_a_trainer_and_held_out_tasks(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "atropos_cli", *GEN, "-o", str(tmp_path / "run"), "--eval-every", "2"]
    for words, complaint in (
        ((), "it needs --to URL"),
        (("--to", "http://127.0.0.1:9", "--split", "test"), "environment 'arithmetic' holds out no tasks"),
    ):
        done = subprocess.run([*command, *words, "--dry-run"], capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert complaint in done.stderr


def test_run_and_server_take_the_token_from_one_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_SERVE__TOKEN", "secret")
    run, server = tmp_path / "run", Server(tmp_path / "queue")
    try:
        with httpx.Client(base_url=server.url, headers={"Authorization": "Bearer secret"}, timeout=30) as client:
            client.post("/register", json=REGISTRATION)
            client.get("/batch")
            assert ends(start(run, server.url, limit=4), run) == 0, run.with_suffix(".stderr").read_text()
            assert sorted(received(client, 4)) == sorted(stored(run))
    finally:
        server.stop()


def test_a_group_size_that_the_trainer_cannot_use_ends_the_run(server: Server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with trainer(server.url, batch_size=6):
        process = start(run, server.url)
        assert ends(process, run) == 3
    assert "group_size 4 does not divide the trainer's batch_size 6" in run.with_suffix(".stderr").read_text()


@pytest.mark.slow
def test_kills_of_run_and_server_lose_and_double_nothing(tmp_path: Path) -> None:
    moments, limit = int(os.environ.get("ATROPOS_TEST_KILLS", "6")), 400
    run, port, dice = tmp_path / "run", free_port(), random.Random(SEED)
    server = Server(tmp_path / "queue", port)
    words = ("--backend.delay-s", "0.05", "--workers", "4", "--off-policy", "1000")
    try:
        with trainer(server.url):
            pass
        process = start(run, server.url, *words, limit=limit)
        for _ in range(moments):
            time.sleep(dice.uniform(2.0, 5.0))
            if dice.random() < 0.5:
                server.kill()
                server = Server(tmp_path / "queue", port)
            elif process.poll() is None:
                process.kill()
                process.wait()
                resume = ("--resume",) if (run / "plan.json").exists() else ()
                process = start(run, server.url, *words, *resume, limit=limit)
        assert ends(process, run) == 0, run.with_suffix(".stderr").read_text()
        with httpx.Client(base_url=server.url, timeout=30) as client:
            assert client.get("/status").json()["queue_size"] == limit
            assert sorted(received(client, limit)) == sorted(stored(run))
    finally:
        process.kill()
        server.kill()
