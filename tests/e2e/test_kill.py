"""kill -9 at random moments, again and again, then resume: no group lost, none doubled, every line whole.

ATROPOS_KILLS sets how many kills (default 30); ATROPOS_KILL_SEED repeats a failing sequence.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from atropos_authoring.mock_server import MockServer

KILLS = int(os.environ.get("ATROPOS_KILLS", "30"))
SEED = int(os.environ.get("ATROPOS_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
ATROPOS = Path(sys.executable).with_name("atropos")

ENVIRONMENT = """
from atropos_cli.sdk import Environment, Episode, Task, TaskStream, reward, user

@reward
def one(task, rollout) -> float:
    return 1.0

class Talk(Episode):
    def __init__(self, task):
        self.task, self.turns = task, 0
    def reset(self):
        return [user(self.task.id)]
    def step(self, reply):
        self.turns += 1
        return None if self.turns == 2 else [user("go on")]

class Talking(Environment):
    name = "talking"
    rewards = (one,)
    def tasks(self, split):
        return TaskStream(lambda i: Task(id=str(i), prompt=(user(str(i)),)))
    def episode(self, task):
        return Talk(task)
"""


def whole_records(path: Path) -> list[dict[str, object]]:
    """Records of all whole lines; each must be valid JSON."""
    if not path.exists():
        return []
    data = path.read_bytes()
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["jsonl", "jsonl.zst"])
def test_killed_at_random_moments(tmp_path: Path, writer: str) -> None:
    kills = KILLS if writer == "jsonl" else max(10, KILLS // 5)
    rng = random.Random(f"{SEED}/{writer}")
    (tmp_path / "talking.py").write_text(ENVIRONMENT)
    run = tmp_path / "run"
    groups = run / f"groups.{writer}"
    limit = kills * 200
    with MockServer(reply="x" * 2000, delay=0.004) as server:
        command = [
            *(str(ATROPOS), "gen", f"{tmp_path}/talking.py:Talking", "--base-url", server.base_url),
            *("--workers", "8", "--group-size", "4", "-o", str(run), "--resume", "--writer", writer),
        ]
        survived: set[object] = set()
        killed = 0
        while killed < kills:
            child = subprocess.Popen([*command, "--limit", str(limit)], stderr=subprocess.PIPE)
            # From before the first write to well into the run.
            time.sleep(rng.uniform(0.15, 1.1))
            child.send_signal(signal.SIGKILL)
            _, errors = child.communicate()
            assert child.returncode == -signal.SIGKILL, f"seed {SEED}: ended by itself: {errors.decode()}"
            killed += 1
            if writer == "jsonl":
                ids = [record["group_id"] for record in whole_records(groups)]
                assert len(ids) == len(set(ids)), f"seed {SEED}, kill {killed}: a group is doubled"
                assert survived <= set(ids), f"seed {SEED}, kill {killed}: a group is lost"
                survived = set(ids)
        done = subprocess.run([*command, "--limit", str(limit), "--json"], capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        summary = json.loads(done.stdout)
    assert (summary["state"], summary["groups_done"]) == ("finished", limit)
    if writer == "jsonl":
        records = [json.loads(line) for line in groups.read_bytes().splitlines()]
    else:
        import zstandard

        with groups.open("rb") as file:
            text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
        records = [json.loads(line) for line in text.splitlines()]
    indexes = sorted(int(str(record["group_id"]).rpartition("-")[2]) for record in records)
    assert indexes == list(range(limit)), f"seed {SEED}"
    assert all(len(record["rollouts"]) == 4 for record in records)  # type: ignore[arg-type]
    assert (summary["rollouts"], summary["rollouts_failed"]) == (4 * limit, 0), "the summary is not of the whole run"
    spent = sum(one["usage"]["completion_tokens"] for record in records for one in record["rollouts"])  # type: ignore[attr-defined]
    assert summary["completion_tokens"] == spent
    print(f"{killed} kills, {summary['groups_resumed']} of {limit} groups were there before the last start")
