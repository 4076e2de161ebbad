"""Random kills during queued pipelines on a real SLURM of its own: what is lost, doubled, left running or untrue.

    python tests/benchmarks/slurm_kills.py [--kills 100] [--pipelines 10] [--seed 1]

Kills with SIGKILL, at random: processes of jobs (batch script, srun, the component's parent, its program, slurmstepd),
whole nodes (slurmd and all below it), and the controller. Half of the pipelines ask for --requeue; one that has
nothing in the queue and is not done is submitted again with --resume. In the end every group must be there once, with
its reward, nothing may be left running, and the state of every job must be the one that SLURM has.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
import slurm_cluster
from slurm_cells import ENV, PLAYER
from slurm_cluster import Cluster

GROUPS, SAMPLES = 12, 2
ATROPOS = (sys.executable, "-P", "-m", "atropos_cli")
FLOW = """
resources = {{ time = "1h", cpus = 1, mem = "300M"{more} }}

[steps.gen]
command = ["gen", "./sums.py:Sums", "--backend", "scripted", "--backend.function", "./player.py:reply",
           "--backend.delay-s", "1", "--group-size", "{samples}", "--workers", "1", "--limit", "{limit}",
           "--output", "{{output}}"]

[steps.scored]
command = ["score", "{{steps.gen.output}}", "-o", "{{output}}", "--reward", "./sums.py:right=1"]

[steps.rows]
command = ["sft-gen", "{{steps.scored.output}}", "-o", "{{output}}"]
"""
STEPS = ("gen", "scored", "rows")
PROCESSES = {
    "batch script": ("-m atropos_cli run ", "job.json"),
    "srun": ("srun ",),
    "parent": ("atropos_cli.jobs.node ",),
    "step": ("-m atropos_cli pipeline step",),
    "program": ("-m atropos_cli gen", "-m atropos_cli score", "-m atropos_cli sft-gen"),
    "slurmstepd": ("slurmstepd:",),
}


class Field:
    """The pipelines, the cluster, and what has happened so far."""

    def __init__(self, cluster: Cluster, place: Path, count: int, seed: int) -> None:
        self.cluster, self.place = cluster, place
        self.chance = random.Random(seed)
        self.names = [f"p{number}" for number in range(count)]
        self.kills: collections.Counter[str] = collections.Counter()
        self.submissions: collections.Counter[str] = collections.Counter()
        self.untrue: list[str] = []
        self.jobs = 0
        self.submitting: tuple[str, subprocess.Popen[str]] | None = None
        self.refused: list[str] = []
        self.asked = time.monotonic()
        (place / "sums.py").write_text(ENV)
        (place / "player.py").write_text(PLAYER)
        for number, name in enumerate(self.names):
            more = "" if number % 2 else ", requeue = true, signal_before = 30"
            flow = FLOW.format(more=more, samples=SAMPLES, limit=GROUPS)
            (place / f"{name}.toml").write_text(flow)

    def submit(self, name: str) -> None:
        """Start to submit it, while kills go on."""
        words = ("pipeline", "run", f"{name}.toml", "-o", name, "--on", "slurm", "--json")
        again = ("--resume",) if (self.place / name).exists() else ()
        self.submitting = (
            name,
            subprocess.Popen([*ATROPOS, *words, *again], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True),
        )

    def submitted(self) -> bool:
        """Has the last submission ended? Its outcome is counted then."""
        if self.submitting is None:
            return True
        name, done = self.submitting
        if done.poll() is None:
            return False
        self.submitting = None
        self.submissions[name] += not done.returncode
        if done.returncode:
            said = done.stderr.read().strip().splitlines() if done.stderr else []
            self.refused.append(f"{name}: {' / '.join(said[-2:]) or done.returncode}")
            print(f"  {self.refused[-1]}", flush=True)
        return True

    def record(self, name: str, step: str) -> str:
        try:
            return str(json.loads((self.place / name / "steps" / step / "record.json").read_text())["state"])
        except (OSError, ValueError):
            return "new"

    def done(self, name: str) -> bool:
        return all(self.record(name, step) == "done" for step in STEPS)

    def queue(self) -> dict[str, str] | None:
        """Jobs that wait or run, by id; None when the controller does not answer."""
        found = subprocess.run(["squeue", "-h", "-o", "%A %j"], capture_output=True, text=True)
        return None if found.returncode else dict(line.split(" ", 1) for line in found.stdout.splitlines())

    def keep(self) -> int:
        """Submit one that is not done and has nothing in the queue; how many pipelines are not done."""
        self.repair()
        ready = self.submitted()
        queued = self.queue() if ready else None
        left = [name for name in self.names if not self.done(name)]
        for name in left:
            if queued is not None and not any(job.startswith(f"{name}-") for job in queued.values()):
                self.submit(name)
                break
        return len(left)

    def repair(self) -> None:
        """What an operator does: release what SLURM holds after a failed launch, bring back drained nodes.

        A node that lost its jobs and was back before SLURM noticed is asked for them only every 20 pings, which is half
        an hour; until then they run on paper. To reconfigure asks it now.
        """
        if time.monotonic() - self.asked > 20:
            self.cluster.output("scontrol", "reconfigure")
            self.asked = time.monotonic()
        for line in self.cluster.output("squeue", "-h", "-t", "pending", "-o", "%A %r").splitlines():
            job, _, reason = line.partition(" ")
            if "held" in reason:
                self.cluster.output("scontrol", "release", job)
        for line in self.cluster.output("sinfo", "-h", "-N", "-o", "%N %t").splitlines():
            node, _, state = line.partition(" ")
            if state.startswith(("drain", "drng", "down")):
                for action in ("down", "resume"):
                    self.cluster.output("scontrol", "update", f"nodename={node}", f"state={action}", "reason=cut")

    # Kills -----------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        kind = self.chance.choices(("job", "node", "controller"), (7, 2, 1))[0]
        if kind == "job" and not self._kill_process():
            return
        if kind == "node":
            self._kill_node()
        if kind == "controller":
            self.cluster.kill_controller()
            time.sleep(self.chance.uniform(0, 6))
            self.cluster.start_controller()
            self.kills["controller"] += 1

    def _kill_process(self) -> bool:
        found: dict[str, list[int]] = {kind: [] for kind in PROCESSES}
        for pid in self.cluster.processes():
            line = slurm_cluster.command_of(pid)
            for kind, marks in PROCESSES.items():
                if any(mark in line for mark in marks) and (kind == "srun") == line.startswith("srun "):
                    found[kind].append(pid)
                    break
        kinds = [kind for kind, pids in found.items() if pids]
        if not kinds:
            return False
        kind = self.chance.choice(kinds)
        slurm_cluster.end(self.chance.choice(found[kind]))
        self.kills[kind] += 1
        return True

    def _kill_node(self) -> None:
        number = self.chance.randint(1, self.cluster.nodes)
        self.cluster.kill_node(number)
        self.kills["node"] += 1
        time.sleep(self.chance.uniform(0, 2))
        seen = self.chance.random() < 0.5  # else it comes back before anybody has noticed
        if seen:
            self.cluster.output("scontrol", "update", f"nodename=n{number}", "state=down", "reason=cut")
        self.cluster.start_node(number)
        if seen:
            self.cluster.output("scontrol", "update", f"nodename=n{number}", "state=resume")

    # The truth -------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """What is said of one job while SLURM has it in the queue, before and after the question."""
        from atropos_slurm.launcher import SlurmLauncher

        from atropos_cli.jobs.status import view
        from atropos_cli.jobs.store import read_submitted

        folders = list(self.place.glob("p*/steps/*/job/submitted.json"))
        if not folders:
            return
        job = read_submitted(self.chance.choice(folders).parent)
        before = self.queue()
        said = view(job, SlurmLauncher(SlurmLauncher.Config()))
        after = self.queue()
        # A controller that is killed forgets its newest jobs, and gives their numbers again.
        same = all((queue or {}).get(job.id) == job.name for queue in (before, after))
        if (
            same
            and read_submitted(job.folder) == job
            and said["state"] not in ("pending", "running")
            and not said.get("silent")
        ):
            self.untrue.append(f"job {job.id} is in the queue, and said to be {said['state']}: {said['reason']}")

    def judge(self) -> list[str]:
        """Everything that is wrong in the end."""
        wrong = list(self.untrue)
        for name in self.names:
            wrong += [f"{name}: {text}" for text in self._data(name)]
            told = subprocess.run([*ATROPOS, "pipeline", "status", name, "--json"], capture_output=True, text=True)
            states = {row["name"]: row["state"] for row in json.loads(told.stdout)["steps"]}
            if told.returncode or set(states.values()) != {"done"}:
                wrong.append(f"{name}: pipeline status ends with {told.returncode}: {states}")
        return wrong + self._states() + self._left()

    def _data(self, name: str) -> list[str]:
        wrong = []
        for file in (self.place / name / "gen/groups.jsonl", self.place / name / "scored.jsonl"):
            groups = [json.loads(line) for line in file.read_text().splitlines()]
            tasks = collections.Counter(str(group["task"]["id"]) for group in groups)
            if tasks != {str(number): 1 for number in range(GROUPS)}:
                wrong.append(f"{file.name}: {len(tasks)} of {GROUPS} groups, doubled: {max(tasks.values(), default=0)}")
            if any(len(group["rollouts"]) != SAMPLES for group in groups):
                wrong.append(f"{file.name}: rollouts are missing")
            rewards = [rollout["reward"] for group in groups for rollout in group["rollouts"]]
            if file.name == "groups.jsonl" and rewards != [1.0] * GROUPS * SAMPLES:
                wrong.append(f"{file.name}: rewards {collections.Counter(rewards)}")
        rows = (self.place / name / "rows.jsonl").read_text().splitlines()
        return wrong if rows else [*wrong, "rows.jsonl is empty"]

    def _states(self) -> list[str]:
        """Each job that was ever submitted: what `list` says, and what SLURM has."""
        told = subprocess.run([*ATROPOS, "slurm", "list", "--all", "--json"], capture_output=True, text=True)
        wrong = []
        for item in json.loads(told.stdout):
            job = self.cluster.job(item["id"])
            has = job.get("JobState", "unknown") if job.get("JobName") == item["name"] else "unknown"
            right = {"COMPLETED": {"finished"}, "CANCELLED": {"cancelled"}, "unknown": {"lost", "failed", "finished"}}
            # Its program was done when SLURM ended it: both are said.
            done_anyway = item["state"] == "finished" and str(item["reason"]).startswith("ended with 0, and")
            if item["state"] not in right.get(has, {"failed"}) and not done_anyway:
                said = f"{item['state']}: {item['reason']}"
                wrong.append(f"job {item['id']} ({item['name']}) is {has}, and said to be {said}")
        self.jobs = len(json.loads(told.stdout))
        return wrong

    def _left(self) -> list[str]:
        daemons = ("slurmctld", "slurmd", "slurmscriptd", "munged")
        deadline = time.monotonic() + 30
        while True:
            lines = [slurm_cluster.command_of(pid) for pid in self.cluster.processes()]
            left = [line for line in lines if line and not any(name in line.split(" ")[0] for name in daemons)]
            left = [line for line in left if "slurmscriptd" not in line]
            if not left and self.queue() == {}:
                return []
            if time.monotonic() > deadline:
                return [f"left running: {line[:200]}" for line in left] + [f"in the queue: {self.queue()}"]
            time.sleep(0.5)


def run(field: Field, kills: int, limit: float) -> list[str]:
    """Kill and submit until everything is done; what is wrong then."""
    began = time.monotonic()
    while field.keep():
        if time.monotonic() - began > limit:
            return [f"not done after {limit:.0f} s: {[name for name in field.names if not field.done(name)]}"]
        time.sleep(field.chance.uniform(0.2, 2))
        if sum(field.kills.values()) < kills and len(field.submissions) > 0:
            field.kill()
            field.look()
            if sum(field.kills.values()) % 10 == 0:
                print(f"{time.monotonic() - began:.0f} s: {dict(field.kills)}", flush=True)
    print(f"done after {time.monotonic() - began:.0f} s", flush=True)
    return field.judge()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--pipelines", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3600, help="seconds")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kills"))
    place = folder / "place"
    place.mkdir()
    os.chdir(place)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    with slurm_cluster.running(folder / "c", cpus=2, gpus=0) as cluster:
        field = Field(cluster, place, options.pipelines, options.seed)
        wrong = run(field, options.kills, options.limit)
    print(f"{sum(field.kills.values())} kills: {dict(field.kills)}")
    print(
        f"{sum(field.submissions.values())} submissions of {len(field.names)} pipelines, {len(field.refused)} refused"
    )
    print("\n".join(wrong) or "nothing lost, doubled, left or untrue")
    print(folder)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
