"""What the product says of jobs of every kind on a real SLURM, whatever happens to them.

    python tests/e2e/slurm_matrix.py OUT.md [CONDITION...]

A condition happens to jobs of all kinds at once: gen, train, gen with its own server, an array, and a pipeline of two
steps. Each has somebody who waits for it and somebody who follows its log. `Cell` collects what they were told, and
`untrue` compares it with what SLURM and the files say.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).parent))
import slurm_cluster
from slurm_cluster import Cluster

KINDS = ("pipeline", "gen", "train", "server", "array")
GROUPS = 8
LONG = 30
"""Groups or steps of what must not end before its condition has come."""
SIZE = ("--time", "20m", "--cpus", "1", "--mem", "300M", "--no-check")
ENV = """
from atropos_cli.sdk import Environment, Task, reward, user

@reward
def right(task, rollout):
    return float(rollout.messages[-1].content == task.answer)

class Sums(Environment):
    name = "sums"
    rewards = (right,)

    def tasks(self, split):
        return [Task(id=str(n), prompt=(user(f"{n}+1?"),), answer=str(n + 1)) for n in range(400)]
"""
TRAINER = """
import time
from atropos_cli.sdk import Config, Field
from atropos_cli.sdk.training import Trainer, TrainResult

class SlowConfig(Config):
    pause: float = Field(default=1.0, description="Seconds of a step.")

class Slow(Trainer):
    name = "slow"
    methods = ("sft",)
    Config = SlowConfig

    def train(self, plan, context):
        saved = context.folder / "checkpoints"
        begin = max((int(path.name[5:]) for path in saved.glob("step-*")), default=0)
        print("training from", begin, flush=True)
        for step in range(begin, plan.steps):
            if context.stopping:
                return TrainResult(output=str(saved), steps=step, stopped="interrupted")
            time.sleep(self.config.pause)
            context.report(step + 1, {"loss": 1 / (step + 1)})
            (saved / f"step-{step + 1}").mkdir(parents=True, exist_ok=True)
        (context.folder / "model").mkdir(exist_ok=True)
        return TrainResult(output=str(context.folder / "model"), steps=plan.steps)
"""
PLAYER = """
import re

def reply(messages, request):
    return str(int(re.search(r"\\d+", messages[-1].content)[0]) + 1)
"""
SERVER = f"""#!{sys.executable}
import sys, time
from atropos_authoring.mock_server import MockServer
w = sys.argv[1:]
host, port = w[w.index("--host") + 1], int(w[w.index("--port") + 1])
with MockServer(flavor="vllm", models=(w[1],), host=host, port=port, delay=1.0):
    time.sleep(3600)
"""
FLOW = """
resources = {{ time = "20m", cpus = 1, mem = "300M"{more} }}

[steps.gen]
command = ["gen", "./sums.py:Sums", "--backend", "scripted", "--backend.function", "./player.py:reply",
           "--backend.delay-s", "1", "--group-size", "1", "--workers", "1",
           "--limit", "{limit}", "--output", "{{output}}"]

[steps.rows]
command = ["sft-gen", "{{steps.gen.output}}", "-o", "{{output}}"]
"""


class Called:
    """The command line in a fork of this process: a new interpreter takes seconds on a busy machine."""

    def __init__(self, *words: str) -> None:
        from atropos_cli.cli import app

        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - open for its life
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            code = 70
            try:
                os.dup2(self._out.fileno(), 1)
                os.dup2(self._err.fileno(), 2)
                code = app.run(list(words))
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
            finally:
                sys.stdout.flush()
                os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, seconds: float = 300) -> Called:
        until(lambda: self.poll() is not None, seconds)
        return self

    @property
    def stdout(self) -> str:
        return self._text(self._out)

    @property
    def stderr(self) -> str:
        return self._text(self._err)

    @staticmethod
    def _text(file: IO[bytes]) -> str:
        return os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace")


def atropos(*words: str) -> Called:
    """The command line, to its end."""
    return Called(*words).wait()


def set_up(place: Path) -> None:
    """The files that the jobs need, and the variables of a user of this place."""
    (place / "sums.py").write_text(ENV)
    (place / "slow.py").write_text(TRAINER)
    (place / "player.py").write_text(PLAYER)
    (place / "bin").mkdir()
    (place / "bin/vllm").write_text(SERVER)
    (place / "bin/vllm").chmod(0o755)
    rows = [{"prompt": f"{n}", "completion": f" {n}"} for n in range(64)]
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@dataclass
class Cell:
    """One job (or pipeline) under a condition, and what is said of it. limit: its groups or steps."""

    kind: str
    place: Path
    name: str
    options: tuple[str, ...] = ()
    requeue: bool = False
    limit: int = GROUPS
    ids: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    waiting: Called | None = None
    following: Called | None = None

    @property
    def run(self) -> Path:
        return self.place / self.name

    @property
    def job(self) -> Path:
        """The folder of the job that the condition happens to."""
        return self.run / "steps/gen/job" if self.kind == "pipeline" else self.run

    @property
    def data(self) -> Path:
        return self.run / "gen" if self.kind == "pipeline" else self.run

    def command(self) -> tuple[str, ...]:
        pace = ("--group-size", "1", "--workers", "1", "--limit", str(self.limit))
        if self.kind == "train":
            words = ("train", "sft", "--data", "rows.jsonl", "--model", "none", "--trainer", "./slow.py:Slow")
            return (*words, "--steps", str(self.limit), "--output", self.name)
        if self.kind == "server":
            return ("gen", "./sums.py:Sums", "--model", "org/tiny", *pace)
        scripted = ("--backend", "scripted", "--backend.function", "./player.py:reply", "--backend.delay-s", "1")
        return ("gen", "./sums.py:Sums", *scripted, *pace)

    def submit(self) -> None:
        """Give the job, with a process that waits for it, and one that follows its log."""
        if self.kind == "pipeline":
            self._submit_pipeline()
        else:
            before = self._id()
            extra = {"array": ("--array", "2"), "server": ("--gpus-per-node", "1", "--serve", "vllm")}
            words = ("slurm", "submit", "--wait", *SIZE, *extra.get(self.kind, ()), *self._requeue(), *self.options)
            if self.kind != "train":
                words += ("--folder", self.name)
            self.waiting = Called(*words, "--", *self.command())
            until(lambda: self._id() != before or self.waiting.poll() is not None, 60)  # type: ignore[union-attr]
            self.ids["job"] = self._id()
        self.following = Called("slurm", "logs", "-f", str(self.job))

    def _id(self) -> str:
        try:
            return str(json.loads((self.job / "submitted.json").read_text())["id"])
        except (OSError, ValueError):
            return ""

    def _requeue(self) -> tuple[str, ...]:
        return ("--requeue", "--signal-before", "30") if self.requeue else ()

    def _submit_pipeline(self) -> None:
        given = [value for key, value in zip(self.options, self.options[1:], strict=False) if key == "--sbatch"]
        options = {value.partition("=")[0]: value.partition("=")[2] for value in given}
        more = ", requeue = true, signal_before = 30" if self.requeue else ""
        if options:
            more += ", sbatch = { " + ", ".join(f'{key} = "{value}"' for key, value in options.items()) + " }"
        text = FLOW.format(more=more, limit=self.limit)
        if "--time" in self.options:
            text = text.replace("20m", self.options[self.options.index("--time") + 1])
        (self.place / f"{self.name}.toml").write_text(text)
        words = ("pipeline", "run", f"{self.name}.toml", "-o", self.name, "--on", "slurm", "--json")
        done = atropos(*words, *(["--resume"] if self.run.exists() else []))
        if done.returncode == 6:
            self.said["refused"] = done.stderr.strip().splitlines()[-1]
            done = atropos(*words, "--resume", "--redo", "gen")
        assert done.returncode == 0, done.stderr
        self.ids = json.loads(done.stdout)["jobs"]

    def begun(self, least: int = 2) -> None:
        """Wait until a part of the work is stored."""
        until(lambda: self.amount() >= least, 300)

    def amount(self) -> int:
        """Groups or steps that are stored."""
        if self.kind == "train":
            return len(list((self.run / "checkpoints").glob("step-*")))
        return len(self.groups())

    def groups(self) -> list[str]:
        files = [self.data / "groups.jsonl", *self.data.glob("shards/*/groups.jsonl")]
        if self.kind == "array" and files[0].exists():
            files = files[:1]  # merged
        found = []
        for path in files:
            if path.exists():
                for line in path.read_text().splitlines():
                    found.append(str(json.loads(line)["group_id"]))
        return found

    def status(self, when: str) -> dict[str, Any]:
        """What `status` says now; kept under a name."""
        done = atropos("slurm", "status", str(self.job), "--json")
        found: dict[str, Any] = json.loads(done.stdout)
        self.said[f"status {when}"] = f"{found['state']}" + (f": {found['reason']}" if found["reason"] else "")
        self.said[f"code of status {when}"] = str(done.returncode)
        if self.kind == "pipeline":
            told = json.loads(atropos("pipeline", "status", self.name, "--json").stdout)["steps"]
            words = [f"{row['name']} {row['state']} ({row.get('job_state', '-')})" for row in told]
            self.said[f"pipeline status {when}"] = ", ".join(words)
        return found

    def finish(self, seconds: float = 400) -> None:
        """Wait for those who wait, and keep what they were told last."""
        if self.waiting is not None:
            lines = self.waiting.wait(seconds).stderr.strip().splitlines()
            states = [line.partition(": ")[2] for line in lines if line.startswith("job ") and ": " in line]
            ends = [line for line in lines if line.startswith("error")]
            self.said["--wait"] = " -> ".join([*states, *ends])
            self.said["exit code"] = str(self.waiting.returncode)
        if self.following is not None:
            text = self.following.wait(seconds).stdout
            lines = [line for line in text.strip().splitlines() if line]
            self.said["logs -f"] = f"{len(lines)} lines, last: {lines[-1] if lines else ''}"
            self.said["code of logs -f"] = str(self.following.returncode)
            self.said["log"] = text
        try:
            ended = json.loads((self.job / "exit.json").read_text())
            self.said["exit.json"] = f"{ended['code']}: {ended['reason']}" + (" (requeued)" * bool(ended["requeued"]))
        except OSError:
            self.said["exit.json"] = "none"


def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.2)


# Conditions: what happens to jobs that are under way ------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """The truth: the last state, words of its reason, and whether the work is complete."""

    state: str = "finished"
    reason: str = ""
    complete: bool = True


class Conditions:
    """Each method makes its condition happen, and returns the truth for the cells of its kind."""

    def __init__(self, cluster: Cluster, place: Path) -> None:
        self.cluster = cluster
        self.place = place

    def cells(self, name: str, *options: str, requeue: bool = False, limit: int = GROUPS) -> list[Cell]:
        kinds = [kind for kind in KINDS if kind in os.environ.get("MATRIX_KINDS", " ".join(KINDS)).split()]
        return [Cell(kind, self.place, f"{name}-{kind}", options, requeue, limit) for kind in kinds]

    def under_way(self, cells: list[Cell]) -> None:
        for cell in cells:
            cell.submit()
        for cell in cells:
            cell.begun()

    def occupy(self, seconds: int = 5) -> None:
        """A job of higher priority takes every core."""
        words = ("-p", "high", "-N", str(self.cluster.nodes), "--exclusive", "--mem-per-cpu=1", "-t", "5")
        self.cluster.output("sbatch", *words, "-J", "important", "-o", "/dev/null", "--wrap", f"sleep {seconds}")

    def first(self, cell: Cell) -> str:
        return next(iter(cell.ids.values()))

    def statuses(self, cells: list[Cell], when: str) -> None:
        for cell in cells:
            cell.status(when)

    def fresh(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("plain")
        for cell in cells:
            cell.submit()
        return cells, Wanted()

    def again(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("plain")
        for cell in cells:
            cell.submit()
        return cells, Wanted()

    def larger(self) -> tuple[list[Cell], Wanted]:
        """Held in the queue for a while: what lies in the folder is of the job before."""
        cells = self.cells("plain", "--sbatch", "hold", limit=GROUPS + 3)
        for cell in cells:
            cell.submit()
        self.statuses(cells, "while held")
        for job in [job for cell in cells for job in cell.ids.values()]:
            self.cluster.output("scontrol", "release", job)
        return cells, Wanted()

    def requeued(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("requeued", requeue=True, limit=LONG)
        self.under_way(cells)
        for cell in cells:
            self.cluster.output("scontrol", "requeue", self.first(cell))
        self.statuses(cells, "after it")
        return cells, Wanted()

    def preempted(self) -> tuple[list[Cell], Wanted]:
        """GraceTime=30; --requeue."""
        cells = self.cells("preempted", requeue=True, limit=LONG)
        self.under_way(cells)
        self.occupy(20)
        until(lambda: all(self.cluster.job(self.first(cell)).get("Restarts") != "0" for cell in cells), 300)
        self.statuses(cells, "after it")
        return cells, Wanted()

    def preempted_for_good(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("preempted-for-good", limit=500)
        self.under_way(cells)
        self.occupy()
        return cells, Wanted("failed", "preempted", complete=False)

    def thrown_out(self) -> tuple[list[Cell], Wanted]:
        """GraceTime=0; --requeue."""
        cells = self.cells("thrown-out", "--sbatch", "partition=now", requeue=True, limit=LONG)
        self.under_way(cells)
        self.occupy(20)
        until(lambda: all(self.cluster.job(self.first(cell)).get("Restarts") != "0" for cell in cells), 300)
        self.statuses(cells, "after it")
        return cells, Wanted()

    def thrown_out_for_good(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("thrown-out-for-good", "--sbatch", "partition=now", limit=500)
        self.under_way(cells)
        self.occupy()
        return cells, Wanted("failed", "preempted", complete=False)

    def time_limit(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("limit", "--time", "1m", limit=500)
        for cell in cells:
            cell.submit()
        return cells, Wanted("failed", "time limit", complete=False)

    def time_limit_again(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("limit-again", "--time", "2m", requeue=True, limit=60)
        for cell in cells:
            cell.submit()
        return cells, Wanted()

    def node_down(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("node-down", limit=500)
        self.under_way(cells)
        self._cut(cells)
        return cells, Wanted("failed", "node", complete=False)

    def node_down_again(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("node-down-again", requeue=True, limit=LONG)
        self.under_way(cells)
        self._cut(cells)
        return cells, Wanted()

    def _cut(self, cells: list[Cell]) -> None:
        numbers = {int(self.cluster.job(self.first(cell))["BatchHost"][1:]) for cell in cells}
        for number in numbers:
            self.cluster.kill_node(number)
        self.statuses(cells, "before SLURM notices")
        for number in numbers:
            self.cluster.output("scontrol", "update", f"nodename=n{number}", "state=down", "reason=cut")
        self.statuses(cells, "after it")
        for number in numbers:
            self.cluster.start_node(number)
            self.cluster.output("scontrol", "update", f"nodename=n{number}", "state=resume")

    def controller_paused(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("paused", limit=LONG)
        self.under_way(cells)
        self.cluster.signal_controller(signal.SIGSTOP)
        try:
            time.sleep(10)
            self.statuses(cells[:2], "meanwhile")
            time.sleep(30)
        finally:
            self.cluster.signal_controller(signal.SIGCONT)
        return cells, Wanted()

    def controller_killed(self) -> tuple[list[Cell], Wanted]:
        """The jobs end while there is no controller."""
        cells = self.cells("killed", limit=LONG)
        self.under_way(cells)
        self.cluster.kill_controller()
        self.statuses(cells[:2], "meanwhile")
        time.sleep(20)
        self.cluster.start_controller()
        return cells, Wanted()

    def cancelled(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("cancelled", limit=500)
        self.under_way(cells)
        for cell in cells:
            done = atropos("slurm", "cancel", str(cell.job))
            cell.said["cancel"] = (done.stdout + done.stderr).strip().splitlines()[0]
        return cells, Wanted("cancelled", "", complete=False)


CONDITIONS = tuple(name for name in vars(Conditions) if not name.startswith("_"))[4:]


# The truth ------------------------------------------------------------------------------------------------------------


def observed(conditions: Conditions, name: str) -> list[tuple[Cell, list[str]]]:
    """The cells of a condition after the end of their jobs, each with what is untrue of it."""
    cells, wanted = getattr(conditions, name)()
    found = []
    for cell in cells:
        try:
            cell.finish()
            for step, job in cell.ids.items():
                cell.said[f"SLURM, {step}"] = _of_slurm(conditions.cluster.wait(job, 120))
        except AssertionError as error:
            found.append((cell, [f"does not end: {error}"]))
            continue
        end = cell.status("at the end")
        found.append((cell, untrue(cell, end, wanted)))
    return found


def _of_slurm(job: dict[str, str]) -> str:
    return f"{job['JobState']} {job['ExitCode']} Restarts={job.get('Restarts')} {job.get('Reason')}"


def untrue(cell: Cell, end: dict[str, Any], wanted: Wanted) -> list[str]:
    """What was said and does not hold."""
    said, wrong = cell.said, []
    if end["state"] != wanted.state:
        wrong.append(f"status: {end['state']}, not {wanted.state}")
    if wanted.reason not in str(end["reason"]):
        wrong.append(f"status: {end['reason']!r} does not say {wanted.reason!r}")
    if said["code of status at the end"] != ("0" if wanted.state == "finished" else "1"):
        wrong.append(f"status ends with {said['code of status at the end']}")
    parts = [part for shard in end.get("shards", [end]) for part in shard["components"]]
    if running := [part["name"] for part in parts if part["state"] == "running"]:
        wrong.append(f"status: {running} still run")
    if "exit code" in said:
        if (said["exit code"] == "0") != (wanted.state == "finished"):
            wrong.append(f"--wait ends with {said['exit code']}")
        if wanted.state not in said["--wait"]:
            wrong.append(f"--wait says {said['--wait']}")
        if wanted.reason not in said["--wait"]:
            wrong.append(f"--wait does not say {wanted.reason!r}: {said['--wait']}")
    if said["code of logs -f"] != "0":
        wrong.append(f"logs -f ends with {said['code of logs -f']}")
    stored = cell.amount()
    if (wanted.complete and stored != cell.limit) or stored > cell.limit:
        wrong.append(f"{stored} of {cell.limit} groups or steps")
    if cell.kind != "train" and len(set(cell.groups())) != len(cell.groups()):
        wrong.append("groups that are stored twice")
    for when in ("while held", "after it", "before SLURM notices", "meanwhile"):
        text = said.get(f"status {when}", "pending")
        early = text.partition(":")[0]
        ended_there = when == "after it" and not wanted.complete and early == wanted.state
        first = next((text for key, text in said.items() if key.startswith("SLURM")), "")
        if early == "finished" and when != "while held" and first.startswith("COMPLETED 0:0 Restarts=0"):
            continue  # a slow machine: it had ended before the condition came
        silent = when == "meanwhile" and early in ("unknown", "finished")
        if early not in ("pending", "running") and not ended_there and not silent:
            wrong.append(f"status {when}: {text}")
    return wrong


def table(rows: list[tuple[str, Cell, list[str]]]) -> str:
    """The matrix in markdown."""
    lines = ["| condition | job | what each says | untrue |", "|---|---|---|---|"]
    for name, cell, wrong in rows:
        said = "<br>".join(f"{key}: {text}" for key, text in cell.said.items() if key != "log")
        safe = said.replace("|", "/").replace("\n", " ").replace(str(cell.place), "$PLACE")
        lines.append(f"| {name} | {cell.kind} | {safe} | {'; '.join(wrong) or 'nothing'} |")
    return "\n".join(lines) + "\n"


def loaded_once() -> None:
    """What every call would import."""
    import atropos_pipeline.commands  # noqa: F401
    import atropos_slurm.launcher  # noqa: F401
    import atropos_training.train  # noqa: F401

    from atropos_cli.cli.commands import gen, job  # noqa: F401


def main() -> None:
    loaded_once()
    out, names = Path(sys.argv[1]), sys.argv[2:] or CONDITIONS
    rows: list[tuple[str, Cell, list[str]]] = []
    with tempfile.TemporaryDirectory() as folder, slurm_cluster.running(Path(folder, "c"), cpus=24, preempt=True) as c:
        place = Path(folder, "place")
        place.mkdir()
        set_up(place)
        os.chdir(place)
        os.environ |= {"XDG_STATE_HOME": f"{place}/state", "PATH": f"{place}/bin{os.pathsep}{os.environ['PATH']}"}
        for name in names:
            began = time.monotonic()
            try:
                found = observed(Conditions(c, place), name)
            except AssertionError as error:
                print(f"{name}: {error}", flush=True)
                if os.environ.get("MATRIX_STOP"):
                    breakpoint()
                continue
            rows += [(name, cell, wrong) for cell, wrong in found]
            for cell, wrong in found:
                print(f"{name} {cell.kind}: {'; '.join(wrong) or 'true'}", flush=True)
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
            out.write_text(table(rows))
    sys.exit(any(wrong for _, _, wrong in rows))


if __name__ == "__main__":
    main()
