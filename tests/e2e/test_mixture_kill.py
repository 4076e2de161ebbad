"""A mixture of three environments with a curriculum, killed at random moments and resumed, ends as an undisturbed run.

ATROPOS_MIXTURE_KILLS sets how many kills (default 3); ATROPOS_KILL_SEED repeats a failing sequence.
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
from typing import Any

KILLS = int(os.environ.get("ATROPOS_MIXTURE_KILLS", "3"))
SEED = int(os.environ.get("ATROPOS_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
ATROPOS = Path(sys.executable).with_name("atropos")
TASKS = 240

FILES = {
    "solver.py": '''
import random, re, time
from collections import Counter

seen = Counter()


def reply(messages, request):
    """Right for small numbers, wrong for large ones; the n-th sample of a request is always the same."""
    text = messages[-1].text
    numbers = [int(part) for part in re.findall("[0-9]+", text)]
    seen[text, request.seed] += 1
    rng = random.Random(f"{text}/{request.seed}/{seen[text, request.seed]}")
    right = rng.random() < {1: 0.95, 2: 0.5}.get(len(str(max(numbers))), 0.05)
    time.sleep(0.002 * rng.random())
    sign = text.split()[3] if "What is" in text else "+"
    return f"Answer: {eval(sign.join(map(str, numbers[:2])))}" if right else "Answer: -1"
''',
    "words.py": """
from atropos_cli.sdk import Environment, Task, reward, user


@reward
def small(task, rollout) -> float:
    return float("-1" not in rollout.text)


class Words(Environment):
    name = "words"
    rewards = (small,)

    def tasks(self, split):
        return [Task(id=str(i), prompt=(user(f"{i % 120} and 1"),)) for i in range(30)]
""",
}


def command(run: str) -> list[str]:
    members = ("add=arithmetic:kind=add,difficulty=mixed,weight=3", "arithmetic:kind=subtract,difficulty=mixed")
    return [
        *(str(ATROPOS), "gen", "mix", "--of", members[0], "--of", members[1], "--of", "./words.py:Words:weight=0.5"),
        *("--curriculum", "difficulty", "--curriculum-window", "12", "--curriculum-replay", "0.25"),
        *("--backend", "scripted", "--backend.function", "./solver.py:reply", "--workers", "4", "--group-size", "4"),
        *("--limit", str(TASKS), "--seed", "5", "-o", run, "--resume"),
    ]


def groups_of(folder: Path) -> dict[int, Any]:
    """Environment, task and rewards by place. A place that is there twice is an error."""
    found: dict[int, Any] = {}
    for line in (folder / "groups.jsonl").read_text().splitlines():
        row = json.loads(line)
        place = int(row["group_id"].rpartition("-")[2])
        assert place not in found, f"seed {SEED}: place {place} twice"
        found[place] = row["env"], row["task"]["id"], [one["reward"] for one in row["rollouts"]]
    return found


def rounds_of(folder: Path) -> list[Any]:
    rows = [json.loads(line) for line in (folder / "curriculum.jsonl").read_text().splitlines()]
    return [row for row in rows if "round" in row]


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_runs_end_as_an_undisturbed_one(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    subprocess.run(command("whole"), cwd=tmp_path, check=True, capture_output=True)
    rng = random.Random(SEED)
    groups = tmp_path / "killed" / "groups.jsonl"
    for upto in sorted(rng.sample(range(1, TASKS - 10), KILLS)):
        child = subprocess.Popen(command("killed"), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while lines(groups) < upto and child.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.random() * 0.03)
        child.send_signal(signal.SIGKILL)
        _, errors = child.communicate()
        assert child.returncode == -signal.SIGKILL, f"seed {SEED}: {errors.decode()}"
    subprocess.run(command("killed"), cwd=tmp_path, check=True, capture_output=True)
    whole, killed = groups_of(tmp_path / "whole"), groups_of(tmp_path / "killed")
    assert len(whole) == TASKS
    assert killed == whole, f"seed {SEED}"
    assert rounds_of(tmp_path / "killed") == rounds_of(tmp_path / "whole"), f"seed {SEED}"
    # The weights are 3 : 1 : 0.5 until the 30 words are used up, with their replays.
    first = [env for place, (env, _, _) in sorted(whole.items()) if place < 90]
    assert [first.count(name) for name in ("add", "arithmetic", "words")] == [60, 20, 10]
    # Both sums and differences: mostly those that are solved half of the time.
    last = [task for place, (env, task, _) in whole.items() if env != "words" and place >= TASKS // 2]
    assert sum("-medium-" in task for task in last) > len(last) / 2
