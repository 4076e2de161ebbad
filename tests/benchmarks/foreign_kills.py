"""Random kills during runs of an environment of another framework: what is lost, doubled, left running or untrue.

    python tests/benchmarks/foreign_kills.py verifiers:sums [--kills 10] [--limit 30] [--seed 1] [-- --timeout-s 5]
    python tests/benchmarks/foreign_kills.py nemo-gym:http://127.0.0.1:81 --serve "PYTHON FILE 81" -- --env.data FILE

At random moments the environment's process is killed or stopped (a hang), or our own process is killed and the run
resumed. With --serve the environment is a server, which is started again. An undisturbed run comes first. In the end
every group of it must be there once, with the same tasks and rewards, and nothing may be left running. The model is a
function of the conversation, so the rewards of both runs can be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ATROPOS = (sys.executable, "-P", "-m", "atropos_cli")
PLAYER = '''
import random


def reply(messages, request):
    """By the text of the conversation: the same in every run."""
    text = "|".join(message.text for message in messages)
    return f"<answer>{random.Random(text).randrange(6)}</answer>"
'''
WAIT_S = 900.0


def processes() -> dict[int, tuple[int, str]]:
    """{pid: (parent, command)} of what runs."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(place.name)] = (parent, (place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def below(pid: int) -> set[int]:
    """The processes that a process started, and theirs."""
    known, found = processes(), {pid}
    while more := {child for child, (parent, _) in known.items() if parent in found} - found:
        found |= more
    return found - {pid}


class Server:
    """What --serve starts."""

    def __init__(self, command: str | None) -> None:
        self._command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        if self._command is not None:
            self.process = subprocess.Popen(shlex.split(self._command), stderr=subprocess.DEVNULL)
            time.sleep(1)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Field:
    """The run that is disturbed."""

    def __init__(self, args: argparse.Namespace, place: Path, server: Server) -> None:
        self.args, self.place, self.server = args, place, server
        self.rng = random.Random(args.seed)
        self.done: Counter[str] = Counter()
        self.stray: set[int] = set()

    def start(self, name: str) -> subprocess.Popen[bytes]:
        out = self.place / name
        command = [
            *ATROPOS, "gen", self.args.target, "--backend", "scripted", "--backend.function", "player.py:reply",
            "--backend.token-ids", "--backend.delay-s", "0.5", "--limit", str(self.args.limit), "--group-size", "2",
            "--workers", "6", "--max-failure-rate", "1", "-q", "-o", str(out), *self.args.rest,
        ]  # fmt: skip
        if (out / "plan.json").exists():
            command.append("--resume")
        with (self.place / f"{name}.err").open("ab") as log:
            return subprocess.Popen(command, cwd=self.place, stderr=log, stdout=log)

    def groups(self, name: str) -> list[dict[str, object]]:
        file = self.place / name / "groups.jsonl"
        lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines]

    def disturb(self, run: subprocess.Popen[bytes]) -> None:
        """One of the things that happen to processes."""
        what = self.rng.choice(("kill theirs", "kill theirs", "hang theirs", "kill ours"))
        theirs = below(run.pid) if self.server.process is None else {self.server.process.pid}
        self.stray |= below(run.pid)
        self.done[what] += 1
        if what == "kill ours":
            run.kill()
        elif theirs:
            for pid in theirs:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL if what == "kill theirs" else signal.SIGSTOP)
            if self.server.process is not None:
                time.sleep(self.rng.uniform(0, 3))
                self.server.end()
                self.server.start()

    def play(self) -> None:
        """Until the run is whole."""
        kills, until = self.args.kills, time.monotonic() + WAIT_S
        while time.monotonic() < until:
            run = self.start("kills")
            while run.poll() is None and time.monotonic() < until:
                if kills:
                    wait, before = time.monotonic() + self.rng.uniform(0, self.args.every), len(self.groups("kills"))
                    while time.monotonic() < wait and run.poll() is None:
                        time.sleep(0.05)
                    # Not only the start: something is to be lost.
                    if (
                        run.poll() is None
                        and (below(run.pid) or self.server.process)
                        and (len(self.groups("kills")) > before or self.rng.random() < 0.3)
                    ):
                        kills -= 1
                        self.disturb(run)
                time.sleep(0.1)
            run.kill()
            run.wait()
            if len(self.groups("kills")) >= self.args.limit:
                return

    def left(self) -> list[str]:
        """Processes of the runs that are there still, after a moment to end."""
        time.sleep(6)
        known = processes()
        return [known[pid][1][:100] for pid in self.stray if pid in known and "atropos" in known[pid][1]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--limit", type=int, default=30)
    parser.add_argument("--every", type=float, default=5.0, help="longest time between two of them, in seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**6))
    parser.add_argument("--serve")
    own, _, rest = "\0".join(sys.argv[1:]).partition("\0--\0")
    args = parser.parse_args(own.split("\0"))
    args.rest = rest.split("\0") if rest else []
    with tempfile.TemporaryDirectory(prefix="foreign-kills-") as folder:
        server = Server(args.serve)
        try:
            field = Field(args, Path(folder), server)
            (field.place / "player.py").write_text(PLAYER)
            field.start("calm").wait(WAIT_S)
            field.play()
            left = field.left()
        finally:
            server.end()
        calm, kills = ({group["task"]["id"]: group for group in field.groups(name)} for name in ("calm", "kills"))  # type: ignore[index]
        seen = Counter(group["task"]["id"] for group in field.groups("kills"))  # type: ignore[index]
        rewards = [
            {name: [rollout["reward"] for rollout in group["rollouts"]] for name, group in found.items()}  # type: ignore[attr-defined]
            for found in (calm, kills)
        ]
        report = {
            "target": args.target, "seed": args.seed, "disturbed": dict(field.done), "groups": len(kills),
            "missing": sorted(calm.keys() - kills.keys()), "twice": [name for name, n in seen.items() if n > 1],
            "other rewards": sorted(n for n in calm.keys() & kills.keys() if rewards[0][n] != rewards[1][n]),
            "left running": left,
        }  # fmt: skip
        print(json.dumps(report, indent=1))
        if not calm or any(report[key] for key in ("missing", "twice", "other rewards", "left running")):
            print((field.place / "kills.err").read_text()[-3000:], file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
