"""Cost of resuming a big run: CPU seconds and peak memory from start to the first new request.

    python tests/benchmarks/resume_bench.py [--groups 1000000] [--rollouts 8] [--folder DIR]

Writes a run of that many groups (once per folder), then resumes it in a fresh process with one task more: without
the stored counts (totals.json), with them, and without the offset index (as after a crash that lost it).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHILD = "--child"


def plan_for(limit: int):
    from atropos_cli.config.settings import GenSettings
    from atropos_cli.plugins.discovery import get_registry
    from atropos_cli.rollout.planner import build_plan

    settings = GenSettings(
        backend="scripted", backend_options={"replies": ["1"]}, group_size=1, limit=limit, model="scripted"
    )
    return build_plan(settings, f"{Path(__file__).resolve()}:Counting", {}, get_registry())


def __getattr__(name: str):
    """The environment of this benchmark, made on first use so that the parent imports nothing."""
    if name != "Counting":
        raise AttributeError(name)
    from atropos_cli.sdk import Environment, Task, TaskStream, reward, user

    @reward
    def one(task, rollout) -> float:
        return 1.0

    class Counting(Environment):
        name = "counting"
        rewards = (one,)

        def tasks(self, split: str) -> TaskStream:
            return TaskStream(lambda i: Task(id=str(i), prompt=(user(str(i)),)))

    return Counting


def write_run(folder: Path, groups: int, rollouts: int) -> None:
    """A run as a crash leaves it: no summary, whole lines."""
    from atropos_cli.domain.group import ScoredGroup, make_group_id
    from atropos_cli.domain.messages import assistant, user
    from atropos_cli.domain.rollout import Rollout
    from atropos_cli.domain.task import Task
    from atropos_cli.io.groupfile import GroupFile, encode_group
    from atropos_cli.io.index import checksum
    from atropos_cli.io.rundir import open_run

    plan = plan_for(groups + 1)
    run = open_run(folder)
    run.write_plan(plan)
    file = GroupFile(folder / "groups.jsonl", prefix=plan.digest[:10], fsync="never")
    list(file.recover())
    messages = (user("what is six times seven?"), assistant("forty-two " * 12))
    sample = ScoredGroup(
        group_id=make_group_id(plan.digest, 0),
        env="counting",
        task=Task(id="0"),
        rollouts=tuple(
            Rollout(id=f"x/{i}", task_id="0", messages=messages, rewards={"one": 1.0}, reward=1.0)
            for i in range(rollouts)
        ),
        model="scripted",
    )
    line = encode_group(sample)
    old = sample.group_id.encode()
    for index in range(groups):
        data = line.replace(old, f"{plan.digest[:10]}-{index}".encode(), 1) + b"\n"
        file._log.write(data)
        file._index.add(index, file._log.size, checksum(index, data))
    file.close()
    run.close()


def child(folder: Path, groups: int) -> None:
    from atropos_cli.builtin.scripted import ScriptedBackend
    from atropos_cli.plugins.discovery import get_registry
    from atropos_cli.rollout.runner import run_gen

    original = ScriptedBackend.generate
    seen = {}

    async def first(self, request):
        seen.setdefault("cpu", time.process_time())
        seen.setdefault("rss", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return await original(self, request)

    ScriptedBackend.generate = first
    summary = run_gen(plan_for(groups + 1), folder=folder, registry=get_registry(), resume=True)
    print(json.dumps({**seen, "resumed": summary.groups_resumed, "done": summary.groups_done}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--folder", type=Path)
    parser.add_argument(CHILD, action="store_true", dest="child")
    options = parser.parse_args()
    if options.child:
        child(options.folder, options.groups)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "run"
        if not (folder / "groups.jsonl").exists():
            write_run(folder, options.groups, options.rollouts)
        size = (folder / "groups.jsonl").stat().st_size
        print(f"| {options.groups:,} groups, {size / 1e9:.2f} GB | CPU s to first request | peak RSS MB | resumed |")
        print("|---|---|---|---|")
        cases = (
            ("without stored counts", "totals.json"),
            ("with both", ""),
            ("with both, the file touched since", "touched"),
            ("without the index", "groups.jsonl.idx"),
        )
        for done, (label, lost) in enumerate(cases, options.groups):
            if lost == "touched":
                (folder / "groups.jsonl").touch()
            elif lost:
                (folder / lost).unlink(missing_ok=True)
            command = [sys.executable, __file__, CHILD, "--folder", str(folder), "--groups", str(done)]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            row = json.loads(out.splitlines()[-1])
            print(f"| {label} | {row['cpu']:.2f} | {row['rss']:.0f} | {row['resumed']:,} |")


if __name__ == "__main__":
    main()
