"""`train grpo --from URL`: batches of a trajectory server, each trained on exactly once whatever is killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from atropos_training.batches import Batches
from atropos_training.pulling import PullSession

from atropos_cli.sdk import DataError

pytest.importorskip("atropos_serve")

LEDGER = f"{Path(__file__).with_name('ledger_trainer.py')}:Ledger"
KILLS = int(os.environ.get("ATROPOS_TEST_KILLS", "4"))
SEED = int(os.environ.get("ATROPOS_TEST_SEED", "17"))
PROMPTS, SIZE = 2, 2


def atropos(*words: str, log: Path) -> subprocess.Popen[str]:
    with log.open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "atropos_cli", *words], stdout=subprocess.PIPE, stderr=errors, text=True
        )


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of a trajectory server."""
    process = atropos("serve", str(tmp_path / "queue"), "--port", "0", log=tmp_path / "serve.log")
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(timeout=60)
    process.stdout.close()


def train(url: str, run: Path, steps: int, *more: str) -> subprocess.Popen[str]:
    sizes = ("--steps", str(steps), "--prompts-per-step", str(PROMPTS), "--group-size", str(SIZE), "--max-tokens", "4")
    words = ("train", "grpo", "--from", url, "--trainer", LEDGER, "--model", "m", *sizes, "-o", str(run), *more)
    return atropos(*words, log=run.with_suffix(".log"))


def group(number: int, **more: Any) -> dict[str, Any]:
    """A group as an environment sends it."""
    own = {"group_overrides": {"group_id": f"g-{number}"}, "inference_logprobs": [[1.0, 1.0, -0.5]] * SIZE}
    tokens = [[1, 2, 3 + place] for place in range(SIZE)]
    return {
        "tokens": tokens,
        "masks": [[-100, -100, ids[2]] for ids in tokens],
        "scores": [float(place) for place in range(SIZE)],
        **own,
        **more,
    }


def push(url: str, *groups: dict[str, Any]) -> None:
    with httpx.Client(base_url=url, timeout=30) as client:
        for one in groups:
            assert client.post("/scored_data", json=one).json()["status"] == "received"


def ends(process: subprocess.Popen[str], run: Path, seconds: float = 240) -> int:
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(run.with_suffix(".log").read_text()) from None
    finally:
        assert process.stdout is not None
        process.stdout.close()
    return code


def learnt(run: Path) -> list[str]:
    found: list[str] = json.loads((run / "learnt.json").read_text())
    return found


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_batches_are_stored_trained_on_and_acknowledged(url: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    push(url, *(group(number) for number in range(6)))
    assert ends(train(url, run, 3), run) == 0, run.with_suffix(".log").read_text()
    assert learnt(run) == [f"g-{number}" for number in range(6)]
    stored = [json.loads(line) for line in (run / "groups.jsonl").read_text().splitlines()]
    assert [row["task"]["info"].get("batch") for row in stored] == [None, 1, None, 2, None, 3]
    spans = [message["tokens"] for message in stored[0]["rollouts"][1]["messages"]]
    assert spans[-1] == {"ids": [1, 2, 4], "mask": [False, False, True], "logprobs": [0.0, 0.0, -0.5], "restart": True}
    with httpx.Client(base_url=url) as client:
        status, live = client.get("/status").json(), client.get("/live/data").json()
    assert (status["current_step"], status["queue_size"], status["leased_batches"]) == (3, 0, 0)
    told = live["registration"]
    assert (told["batch_size"], told["num_steps"]) == (PROMPTS * SIZE, 3)
    assert told["checkpoint_dir"] == str((run / "weights").resolve())


def test_what_is_too_old_has_no_part_in_its_step(url: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    versions = [[[[None, 2], [version, 1]]] * SIZE for version in (0, 0, 0, 0, 0, 3)]
    rows = [[{"weights_versions": runs} for runs in both] for both in versions]
    push(url, *(group(number, overrides=own) for number, own in enumerate(rows)))
    assert ends(train(url, run, 3, "--off-policy", "1"), run) == 0, run.with_suffix(".log").read_text()
    steps = [row for row in metrics(run) if row["kind"] == "train"]
    assert [row["batch/dropped"] for row in steps] == [0, 0, 2]
    assert [row["batch/other_weights"] for row in steps] == [0, 1, 1]
    assert [row.get("batch/age_max") for row in steps] == [0, 1, -1]


def test_a_trainer_that_waits_ends_at_a_signal(url: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = train(url, run, 3)
    with httpx.Client(base_url=url) as client:
        while not client.get("/live/data").json()["registration"]:
            time.sleep(0.1)
    process.terminate()
    assert ends(process, run, 60) == 130
    assert json.loads((run / "train.json").read_text())["state"] == "interrupted"
    push(url, *(group(number) for number in range(6)))
    assert ends(train(url, run, 3, "--resume"), run) == 0
    assert learnt(run) == [f"g-{number}" for number in range(6)]


@contextmanager
def run_api(*batches: list[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """A stand-in of atroposlib's run-api: no leases, no ids, what was given is gone. Gives what was asked."""
    waiting, asked = list(batches), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, found: object) -> None:
            asked.append(f"{self.command} {self.path}")
            data = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer({"uuid": 1})

        def do_GET(self) -> None:
            self.answer({"batch": waiting.pop(0) if waiting else None})

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_without_leases(tmp_path: Path) -> None:
    run = tmp_path / "run"
    wrong = group(9, tokens=[[1, 2, -3]] * SIZE)
    with run_api([group(0), wrong], [], [group(1), group(2)]) as (url, asked):
        assert ends(train(url, run, 2), run) == 0, run.with_suffix(".log").read_text()
    assert asked == ["POST /register", *["GET /batch"] * 3]
    assert learnt(run) == ["g-0", "g-1", "g-2"]
    assert "a group is left out: not a scored group" in run.with_suffix(".log").read_text()


class Kept:
    """A writer that only remembers."""

    def __init__(self) -> None:
        self.groups: list[Any] = []

    def write(self, groups: tuple[Any, ...]) -> None:
        self.groups.extend(groups)


def test_what_cannot_be_trained_on_is_left_out_and_said(tmp_path: Path) -> None:
    said, kept = list[str](), Kept()
    short = group(0, masks=[[-100, -100, -100], [-100, -100, 4]])
    bare = group(1, masks=[[1, 2, 3]] * SIZE, inference_logprobs=None)
    high = group(2, tokens=[[1, 2, 3 + 9 * place] for place in range(SIZE)], masks=[[-100, -100, 3]] * SIZE)
    vast = group(3, scores=[1e200, -1e200])
    with run_api([short, bare, high, vast, group(4)]) as (url, _):
        batches = Batches(url, "0" * 10, tmp_path / "groups.jsonl", said.append)
        batches.vocabulary = 12
        found = batches.of(0, kept, lambda: False)  # type: ignore[arg-type]
        batches.close()
    assert [one.task.id.rpartition("/")[2] for one in found] == ["g-0", "g-4"]
    assert [[one.reward for one in part.rollouts] for part in found] == [[None, 1.0], [0.0, 1.0]]
    assert kept.groups == found
    assert [text.partition("left out: ")[2] for text in said] == [
        "environment None sends no rollout with a prompt and a trained token",
        "not a scored group: a score of 1e+200",
        "environment None sends token 12, the model's are 0 to 11",
    ]


def test_advantages_that_are_not_used_are_said_once(tmp_path: Path) -> None:
    said = list[str]()
    own = group(0, advantages=[[0, 0, 0.5], [0, 0, -1]])
    odd = [group(1, advantages=[[0.5], [-1]]), group(2, advantages=[[1, 2], [3]])]
    with run_api([own, *odd]) as (url, _):
        batches = Batches(url, "0" * 10, tmp_path / "groups.jsonl", said.append)
        found = batches.of(0, Kept(), lambda: False)  # type: ignore[arg-type]
        batches.close()
    assert [one.advantages for one in found] == [(0.5, -1.0), None, None]
    assert ["sends advantages that are not one for all tokens" in text for text in said] == [True]


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ({"vocabulary": 4}, "sends token 4, the model's are 0 to 3"),
        ({"group_size": 4}, "sends a group of 2, and this trainer takes 4"),
    ],
)
def test_a_batch_that_is_unfit_ends_the_run_and_stays_with_the_server(
    tmp_path: Path, limit: dict[str, int], text: str
) -> None:
    with run_api([group(0), group(1)]) as (url, asked):
        batches = Batches(url, "0" * 10, tmp_path / "groups.jsonl", print)
        vars(batches).update(limit)
        with pytest.raises(DataError, match=text):
            batches.of(0, Kept(), lambda: False)  # type: ignore[arg-type]
        batches.close()
    assert asked == ["GET /batch"]  # and no acknowledgement


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--from", "ftp://x", "--steps", "1"), "expected http://HOST:PORT"),
        (("--from", "http://127.0.0.1:9"), "--from needs --steps"),
        (("--from", "http://127.0.0.1:9", "--env", "arithmetic", "--steps", "1"), "exclude each other"),
    ],
)
def test_refused(cli: Any, words: tuple[str, ...], complaint: str) -> None:
    done = cli("train", "grpo", "--trainer", LEDGER, "--model", "m", *words)
    assert done.code == 2
    assert complaint in done.stderr


@pytest.mark.slow
def test_a_trainer_killed_at_any_moment_loses_no_group_and_trains_on_none_twice(url: str, tmp_path: Path) -> None:
    run, dice = tmp_path / "run", random.Random(SEED)
    steps = 15 * KILLS
    push(url, *(group(number) for number in range(steps * PROMPTS)))
    process = train(url, run, steps)
    killed, seen = 0, 0.0
    while killed < KILLS:
        before = time.monotonic()
        while not (run / "metrics.jsonl").exists() or (run / "metrics.jsonl").stat().st_mtime <= seen:
            assert process.poll() is None, run.with_suffix(".log").read_text()
            assert time.monotonic() - before < 120
            time.sleep(0.02)
        seen = (run / "metrics.jsonl").stat().st_mtime
        time.sleep(dice.uniform(0.0, 0.5))
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        killed += 1
        process = train(url, run, steps, "--resume")
    assert ends(process, run) == 0, run.with_suffix(".log").read_text()
    # A batch on its way when the trainer died comes again when its lease ends: later, and once.
    assert sorted(learnt(run)) == sorted(f"g-{number}" for number in range(steps * PROMPTS))
    with httpx.Client(base_url=url) as client:
        status = client.get("/status").json()
    assert (status["queue_size"], status["leased_batches"]) == (0, 0)
    print(f"{steps} batches, killed {killed} times")


class Saved:
    """Saves a file with a text, as a model and a tokenizer do."""

    def __init__(self, text: str) -> None:
        self._text = text

    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "saved").write_text(self._text)


def given(run: Path, model: Any, step: int, *, served: bool = False) -> Any:
    """Leave the weights of a step; what the marker names then."""
    run.mkdir(exist_ok=True)
    names = {"folder": run, "_given": None, "_in_process": True, "_backend": None, "_loop": None}
    batches = SimpleNamespace(served=lambda: served)
    PullSession._give(SimpleNamespace(**names, _batches=batches, _model=model, _tokenizer=model), step)  # type: ignore[arg-type]
    return json.loads((run / "weights" / "weights.json").read_text())["folder"]


def test_the_first_weights_are_left_where_others_may_have_been_taken(tmp_path: Path) -> None:
    """By a generator that has followed another trainer of the server, and cannot go back by itself."""
    assert given(tmp_path / "first", Saved("first"), 0) is None
    assert given(tmp_path / "again", Saved("first"), 0, served=True) == "step-0"
    assert (tmp_path / "again" / "weights" / "step-0" / "saved").read_text() == "first"
    assert given(tmp_path / "again", Saved("first"), 0) == "step-0.1"  # resumed; the server is at step 0 now


class Full(Saved):
    """Writes a part of it."""

    def save_pretrained(self, folder: Path) -> None:
        super().save_pretrained(folder)
        raise OSError(28, "No space left on device")


def test_weights_that_do_not_fit_on_the_disk_leave_nothing_of_them(tmp_path: Path) -> None:
    given(tmp_path, Saved("three"), 3)
    before = (tmp_path / "weights" / "weights.json").read_text()
    with pytest.raises(OSError, match="No space left"):
        given(tmp_path, Full("four"), 4)
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == ["step-3", "weights.json"]
    assert (tmp_path / "weights" / "weights.json").read_text() == before


def test_old_weights_go_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who loads them meanwhile finds no folder, never half of one."""
    seen, remove = list[str](), shutil.rmtree

    def noting(path: Path, **more: Any) -> None:
        if path.exists():
            seen.append(path.name)
        remove(path, **more)

    for step in (1, 2):
        given(tmp_path, Saved(str(step)), step)
    monkeypatch.setattr(shutil, "rmtree", noting)
    given(tmp_path, Saved("3"), 3)
    assert seen == [".removing"]


def test_weights_go_also_when_a_trainer_was_killed_after_its_last_step(url: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    push(url, *(group(number) for number in range(2)))
    assert ends(train(url, run, 1), run) == 0, run.with_suffix(".log").read_text()
    state = json.loads((run / "train.json").read_text())
    (run / "train.json").write_text(json.dumps({**state, "state": "running"}))
    given(run, Saved("one"), 1)
    assert ends(train(url, run, 1, "--resume"), run) == 0, run.with_suffix(".log").read_text()
    assert not (run / "weights").exists()


def test_a_resumed_trainer_leaves_the_weights_alone_that_others_read_now(tmp_path: Path) -> None:
    """It leaves those of the same step under another name: a marker never names a folder that is not there."""

    def give(step: int, text: str) -> str:
        told: str = given(tmp_path, Saved(text), step)
        assert (tmp_path / "weights" / told / "saved").read_text() == text
        return told

    assert give(3, "three") == "step-3"
    assert give(4, "four") == "step-4"
    first = give(4, "four, resumed")
    assert first != "step-4"
    assert (tmp_path / "weights" / "step-4" / "saved").read_text() == "four"
    assert give(4, "four, resumed again") not in ("step-4", first)
    assert give(5, "five") == "step-5"
    left = sorted(path.name for path in (tmp_path / "weights").glob("step-*"))
    assert left == ["step-4", "step-4.1", "step-4.2", "step-5"]
    give(6, "six")
    assert sorted(path.name for path in (tmp_path / "weights").glob("step-*")) == ["step-5", "step-6"]
