"""Jobs of every kind on a real SLURM, those who wait for them and follow their logs, and what each is told."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

KINDS = ("pipeline", "gen", "train", "server", "array")
GROUPS = 8
LONG = 30
"""Groups or steps of what must not end before its condition has come."""
SIZE = ("--cpus", "1", "--mem", "300M", "--no-check")
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
                # pytest's own streams go elsewhere.
                sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
                code = app.run(list(words))
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
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
            limit = () if "--time" in self.options else ("--time", "20m")
            extra = {"array": ("--array", "2"), "server": ("--gpus-per-node", "1", "--serve", "vllm")}
            words = (
                "slurm",
                "submit",
                "--wait",
                *limit,
                *SIZE,
                *extra.get(self.kind, ()),
                *self._requeue(),
                *self.options,
            )
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


def until(condition: Callable[[], Any], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.2)
