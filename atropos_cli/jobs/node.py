"""The parent of one component, on the node where it runs: picks ports, publishes the endpoint, runs the program.

    python -m atropos_cli.jobs.node FOLDER NAME          python .../jobs/node.py FOLDER NAME

Everything it needs stands in FOLDER/job.json. It stays as a child subreaper: whatever the program leaves
behind (an engine that outlives its killed API server) becomes its child and is ended here. Files are written
under another name and renamed, so nobody reads half a file. Standard library only; it also runs inside a
container image that has no atropos, straight from its file.

SIGURG (ignored by programs that do not know it) means: stop the program politely. SLURM sends a signal to
all processes of a step, so SIGTERM, which the program gets as well, is passed on only with --forward.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if not __package__:  # started by its path
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from atropos_cli.domain.placeholders import endpoint_parts, fill, joined
from atropos_cli.jobs.network import NoAddress, NoPort, Ports, own_address
from atropos_cli.jobs.processes import become_subreaper, die_with_parent, end_descendants, send
from atropos_cli.network import SERVER_KEYS
from atropos_cli.paths import replacing

MARK = "_ATROPOS_COMPONENT"
"""Environment variable that marks the component's processes: FOLDER/NAME."""
_ENDPOINT_WAIT = 60.0
_LEFTOVER_GRACE = 5.0
CANNOT_START = 127


def slurm_job(environ: Mapping[str, str]) -> str | None:
    """The id of the SLURM job we are in, ARRAY_TASK for one of an array.

    The last task of an array has the id of the whole array as its SLURM_JOB_ID: what is meant for the task
    would reach all of them.
    """
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID")


class CannotStart(Exception):
    """The component cannot be started here; the text says why."""


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a file as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, sync=False) as file:
        file.write(json.dumps(record).encode())


def visible_gpus(wanted: list[int], environ: dict[str, str]) -> str:
    """The value of CUDA_VISIBLE_DEVICES for some of the GPUs this job has here, in the given spelling."""
    given = environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        here = [item.strip() for item in given.split(",") if item.strip()]
    else:
        count = environ.get("SLURM_GPUS_ON_NODE", "")
        # Without a list and a count nothing is known, and nothing restricted.
        here = [str(number) for number in range(int(count) if count.isdigit() else max(wanted, default=-1) + 1)]
    if wanted and max(wanted) >= len(here):
        raise CannotStart(f"wants GPU {max(wanted)} (counted from 0), but the job has {len(here)} GPUs on this node")
    return ",".join(here[number] for number in wanted)


class Component:
    """One component of the job in `folder`, on this node."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.job: dict[str, Any] = json.loads((folder / "job.json").read_bytes())
        self.spec: dict[str, Any] = next(item for item in self.job["components"] if item["name"] == name)
        self.ports: dict[str, int] = {}
        self.host = ""
        self._peers: set[str] = set()  # hosts of other components that this one is told of
        self._keys: set[str] = set()  # HOST:PORT=VARIABLE of those that want a key

    def place(self, ports: Ports) -> None:
        """Decide address and ports."""
        local = self.job["resources"]["nodes"] == 1 and not self.job["expose"]
        self.host = own_address(local=local, interface=self.job["interface"])
        fixed = self.spec.get("port")
        for name in self.spec["ports"]:
            self.ports[name] = ports.take(fixed) if fixed and not self.ports else ports.pick()

    def value(self, token: str) -> str:
        """What a placeholder stands for."""
        kind, _, rest = token.partition(":")
        if kind == "host":
            return self.host
        if kind == "port":
            return str(self.ports[rest] if rest else next(iter(self.ports.values())))
        if kind == "endpoint":
            return self._endpoint(token)
        if kind == "shard":
            index, count = self.job["shard"] or (0, 1)
            return f"{index}/{count}"
        return str(self.folder)

    def _endpoint(self, token: str) -> str:
        name, port_name, part = endpoint_parts(token)
        path = self.folder / "endpoints" / f"{name}.json"
        deadline = time.monotonic() + _ENDPOINT_WAIT  # a network file system may show the file late
        while not path.exists():
            if time.monotonic() > deadline:
                raise CannotStart(f"{path} is not there")
            time.sleep(0.2)
        found = json.loads(path.read_bytes())
        self._peers.add(str(found["host"]))
        if part == "host":
            return str(found["host"])
        port = found["ports"][port_name] if port_name else next(iter(found["ports"].values()))
        address = joined(found["host"], port)
        key = next((item.get("key_env") for item in self.job["components"] if item["name"] == name), None)
        if key is not None:
            self._keys.add(f"{address}={key}")
        return str(port) if part == "port" else address

    def environment(self) -> dict[str, str]:
        """This process's variables, those of the job, and those of the component."""
        env = dict(os.environ)
        env.update({name: fill(text, self.value) for name, text in {**self.job["env"], **self.spec["env"]}.items()})
        if self.spec["gpus"] is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible_gpus(self.spec["gpus"], env)
        env[MARK] = f"{self.folder}/{self.name}"
        return env

    def start(self) -> subprocess.Popen[bytes]:
        argv = [fill(text, self.value) for text in self.spec["argv"]]
        env = self.environment()
        if self._peers:  # a cluster's proxy leads out of it, not to its nodes
            direct = [env.get("no_proxy") or env.get("NO_PROXY") or "", *sorted(self._peers)]
            env["no_proxy"] = env["NO_PROXY"] = ",".join(filter(None, direct))
        if self._keys:
            env[SERVER_KEYS] = " ".join(sorted(self._keys))
        cwd = self.spec["cwd"] or self.job["cwd"]
        try:
            return subprocess.Popen(  # noqa: S603 - the program the user named
                argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent
            )
        except OSError as error:
            where = f" in {cwd}" if cwd and not Path(cwd).is_dir() else ""
            raise CannotStart(f"cannot start {argv[0]!r}{where}: {error.strerror}") from error

    def publish(self, pid: int) -> None:
        job, step = slurm_job(os.environ), os.environ.get("SLURM_STEP_ID")
        record = {
            "name": self.name,
            "host": self.host,
            "ports": self.ports,
            "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            "pid": pid,
            "parent": os.getpid(),
            "step": f"{job}.{step}" if job and step else None,
            "started": time.time(),
        }
        write_json(self.folder / "endpoints" / f"{self.name}.json", record)

    def finish(self, code: int, problem: str | None = None, leftovers: int = 0) -> None:
        record = {
            "name": self.name,
            "code": code,
            "problem": problem,
            "leftovers": leftovers,
            "ended": time.time(),
            "parent": os.getpid(),
        }
        write_json(self.folder / "status" / f"{self.name}.json", record)


class Signals:
    """Keeps this parent alive through signals, and passes a stop on once there is a program.

    One stop comes by several ways: SLURM tells every process of a step, and the other of our two processes passes it
    on as well. A program that saves its work at the first SIGTERM drops it at the second, so it must get one for one.
    """

    _ONE = 1.5
    """Seconds within which a stop is the same one."""

    def __init__(self, *, forward: bool) -> None:
        self.child: int | None = None
        self.stopped = False
        self._last = float("-inf")
        self._told_by_cluster = False
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, self._stop if forward else self._remember)
        signal.signal(signal.SIGURG, self._stop)

    def _remember(self, *_: object) -> None:
        """The program has been told; the supervisor, told too, is about to say it once more."""
        self.stopped = self._told_by_cluster = True

    def _stop(self, *_: object) -> None:
        self.stopped = True
        again = time.monotonic() - self._last < self._ONE
        self._last = time.monotonic()
        if again or self.child is None:
            return
        if self._told_by_cluster:
            self._told_by_cluster = False
            return
        send([self.child], signal.SIGTERM)

    def attach(self, pid: int) -> None:
        """From now on a stop reaches this program; one that came before reaches it now."""
        self.child = pid
        if self.stopped:
            send([pid], signal.SIGTERM)


def wait(child: subprocess.Popen[bytes]) -> int:
    """The program's exit code, 128+n for a signal. Reaps every adopted orphan that ends meanwhile."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            child.returncode = code
            return code if code >= 0 else 128 - code


def run(folder: Path, name: str, signals: Signals) -> int:
    """Run one component to its end."""
    component = Component(folder, name)
    ports = Ports(os.environ.get("SLURM_JOB_ID") or str(folder), name)
    try:
        component.place(ports)
        if signals.stopped:
            raise CannotStart("stopped before it was started")
        child = component.start()
    except (CannotStart, NoAddress, NoPort) as error:
        print(f"atropos: {name}: {error}", file=sys.stderr, flush=True)  # noqa: T201 - this is the component's log
        component.finish(CANNOT_START, str(error))
        return CANNOT_START
    component.publish(child.pid)
    signals.attach(child.pid)
    code = wait(child)
    leftovers = end_descendants(os.getpid(), grace=_LEFTOVER_GRACE)
    component.finish(code, leftovers=leftovers)
    return code


def keep(worker: int, folder: Path, name: str) -> int:
    """Wait for the process that runs the component; end what it leaves if it was killed. Returns the exit code."""

    def pass_on(*_: object) -> None:
        send([worker], signal.SIGURG)

    signal.signal(signal.SIGURG, pass_on)
    if "--forward" in sys.argv:
        signal.signal(signal.SIGTERM, pass_on)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == worker:
            break
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    end_descendants(os.getpid(), grace=_LEFTOVER_GRACE)
    record = {"name": name, "code": 128 - code, "problem": f"its parent was ended by signal {-code}"}
    write_json(folder / "status" / f"{name}.json", {**record, "ended": time.time()})
    return 128 - code


def main() -> int:
    """The command: two processes, so that whichever is killed, the other one ends the program and what it started."""
    words = [word for word in sys.argv[1:] if word != "--forward"]
    folder, name = Path(words[0]), words[1]
    signals = Signals(forward="--forward" in sys.argv[1:])
    die_with_parent(signal.SIGURG)
    become_subreaper()
    worker = os.fork()
    if worker:
        return keep(worker, folder, name)
    die_with_parent(signal.SIGURG)
    become_subreaper()
    return run(folder, name, signals)


if __name__ == "__main__":
    sys.exit(main())
