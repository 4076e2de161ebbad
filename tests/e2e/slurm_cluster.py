"""A real SLURM of its own on this machine: several nodes with made-up GPUs, no systemd, nothing of /etc touched.

    apt-get install -y --no-install-recommends slurm-wlm munge

Each daemon has its own port, the authentication its own key and socket, and all state lies in one folder; so it
runs beside another SLURM. Needs root, since slurmd refuses to run as somebody else.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "squeue", "sinfo")
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "PREEMPTED")


def missing() -> str | None:
    """Why no cluster can be started here."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed (apt-get install slurm-wlm munge)"
    return None if os.geteuid() == 0 else "slurmd needs root"


def free_ports(count: int) -> int:
    """The first of `count` free ports in a row."""
    places = range(17000, 19900, count)
    turn = os.getpid() % len(places)  # two clusters that start at the same moment look at different ports
    for first in [*places[turn:], *places[:turn]]:
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no free ports")


class Cluster:
    """Two nodes with four cores and two GPUs each, unless told otherwise. `up` takes about a second.

    A file `prolog` that is in the folder by then is run before each task.

    preempt: jobs of the partitions low (with a grace time of 30 s) and now (with none) make room for those of high.
    """

    def __init__(
        self, folder: Path, *, nodes: int = 2, gpus: int = 2, cpus: int = 4, name: str = "test", preempt: bool = False
    ) -> None:
        self.folder = folder
        self.nodes, self.gpus, self.cpus = nodes, gpus, cpus
        self.name, self.preempt = name, preempt
        self.conf = folder / "slurm.conf"

    def up(self) -> None:
        for name in ("state", "log", "dev", "munge", *(f"spool/n{i}" for i in range(1, self.nodes + 1))):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(self.gpus):
            # A GPU must be a character device for slurmd; any will do.
            (self.folder / "dev" / f"gpu{number}").symlink_to("/dev/null")
        self.folder.chmod(0o755)
        self._munge()
        self._configure()
        os.environ["SLURM_CONF"] = str(self.conf)  # `running` puts the old one back
        self.start_controller()
        for number in range(1, self.nodes + 1):
            self.start_node(number)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.output("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(self.nodes):
                return
            time.sleep(0.05)
        raise RuntimeError(self.output("sinfo", "-N", "-o", "%N %T %E") + self._logs())

    def down(self) -> None:
        for job in self.output("squeue", "-h", "-o", "%A").split():
            self.output("scancel", "--signal=KILL", "--full", job)
            self.output("scancel", job)
        for path in self.folder.glob("*.pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(path.read_text()), signal.SIGTERM)
        deadline = time.monotonic() + 15
        while any(self._alive(path) for path in self.folder.glob("*.pid")) and time.monotonic() < deadline:
            time.sleep(0.05)
        for program in ("slurmctld", "slurmscriptd", "slurmd", "slurmstepd"):  # killed ones may have left their like
            for pid in self.processes(program):
                end(pid)

    @staticmethod
    def _alive(path: Path) -> bool:
        try:
            state = Path("/proc", path.read_text().strip(), "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            return False
        return state != "Z"

    def _munge(self) -> None:
        place = self.folder / "munge"
        place.chmod(0o711)
        (place / "key").write_bytes(os.urandom(128))
        (place / "key").chmod(0o400)
        self._run(
            "munged",
            "--force",
            f"--key-file={place / 'key'}",
            f"--socket={place / 'sock'}",
            f"--pid-file={self.folder / 'munged.pid'}",
            f"--log-file={place / 'log'}",
            f"--seed-file={place / 'seed'}",
        )

    def _configure(self) -> None:
        host = socket.gethostname().partition(".")[0]
        base = free_ports(self.nodes + 1)
        meminfo = Path("/proc/meminfo").read_text()
        memory = int(re.search(r"MemTotal:\s+(\d+)", meminfo)[1]) // 1024 * 9 // 10 // self.nodes  # type: ignore[index]
        at = self.folder
        gres = f"Gres=gpu:{self.gpus}" if self.gpus else ""
        self.conf.write_text(
            f"""\
ClusterName={self.name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={base}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# a requeued job may start again once its old credentials have ended: normally after two minutes
AuthInfo=socket={at}/munge/sock,cred_expire=5
CredType=cred/munge
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool/%n
SlurmctldPidFile={at}/ctld.pid
SlurmdPidFile={at}/d-%n.pid
SlurmctldLogFile={at}/log/ctld.log
SlurmdLogFile={at}/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={at}/log/jobcomp.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=200
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=15
MinJobAge=3600
MaxArraySize=101
SchedulerParameters=sched_min_interval=0,bf_interval=2
{"GresTypes=gpu" if self.gpus else ""}
{f"TaskProlog={at}/prolog" if (at / "prolog").exists() else ""}
NodeName=n[1-{self.nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{base + 1}-{base + self.nodes}] \
CPUs={self.cpus} RealMemory={memory} {gres} State=UNKNOWN
{self._partitions()}
"""
        )
        lines = f"Name=gpu File={at}/dev/gpu[0-{self.gpus - 1}]\n" if self.gpus else ""
        (at / "gres.conf").write_text(lines)

    def _partitions(self) -> str:
        all_nodes = "Nodes=ALL MaxTime=INFINITE State=UP"
        if not self.preempt:
            return f"PartitionName=main {all_nodes} Default=YES"
        low = f"{all_nodes} PriorityTier=1 PreemptMode=REQUEUE"
        return f"""\
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
PartitionName=low {low} GraceTime=30 Default=YES
PartitionName=now {low} GraceTime=0
PartitionName=high {all_nodes} PriorityTier=10 PreemptMode=OFF"""

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stderr}{self._logs()}")

    def _logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in (self.folder / "log").glob("*.log"))

    def output(self, *command: str) -> str:
        """What a command prints, also when it fails."""
        return subprocess.run(command, capture_output=True, text=True).stdout

    # What breaks -----------------------------------------------------------------------------------------------------

    def start_controller(self) -> None:
        self._run("slurmctld", "-f", str(self.conf))

    def start_node(self, number: int) -> None:
        self._run("slurmd", "-f", str(self.conf), "-N", f"n{number}")

    def signal_controller(self, number: int) -> None:
        os.kill(int((self.folder / "ctld.pid").read_text()), number)

    def kill_controller(self) -> None:
        """As a crash: no state is saved."""
        found = self.processes("slurmctld")
        for pid in found:
            end(pid)
        _gone(found)

    def kill_node(self, number: int) -> None:
        """As a power cut: slurmd, what it started, and everything below that, at once."""
        name = f"n{number}"
        for _ in range(3):  # some may have been starting others
            of_node = {pid for pid in self.processes() if _variable(pid, "SLURMD_NODENAME") == name}
            parents = {_parent(pid) for pid in of_node}
            steps = {pid for pid in self.processes("slurmstepd") if pid in parents}
            daemon = {pid for pid in self.processes("slurmd") if command_of(pid).endswith(f"-N {name}")}
            found = [*daemon, *steps, *of_node]
            for pid in found:
                end(pid)
            _gone(found)

    def processes(self, program: str | None = None) -> list[int]:
        """Living processes of this cluster: all with its configuration, or those of a program."""
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and int(path.name) != os.getpid():
                pid = int(path.name)
                if _variable(pid, "SLURM_CONF") == str(self.conf):
                    name = command_of(pid).partition(" ")[0].rpartition("/")[2].rstrip(":")
                    if program is None or name == program:
                        found.append(pid)
        return found

    # Asking about jobs -----------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> dict[str, str]:
        """`scontrol show job` as a mapping."""
        text = self.output("scontrol", "show", "job", "-o", job_id)
        return dict(re.findall(r"(\w+)=(\S*)", text))

    def wait(self, job_id: str, seconds: float = 60) -> dict[str, str]:
        """The job after its end."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.job(job_id)
            if found.get("JobState") in ENDED and found.get("Requeue") is not None:
                return found
            time.sleep(0.1)
        raise AssertionError(f"job {job_id} has not ended: {self.job(job_id)}")


def end(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 5
    while any(command_of(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)


def command_of(pid: int) -> str:
    """Empty for one that has ended."""
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _variable(pid: int, name: str) -> str | None:
    try:
        lines = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [line for line in lines if line.startswith(f"{name}=".encode())]
    return found[0].partition(b"=")[2].decode(errors="replace") if found else None


def _parent(pid: int) -> int:
    try:
        return int(Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


@contextlib.contextmanager
def running(folder: Path, **size: Any) -> Iterator[Cluster]:
    """A cluster in a folder, which all commands of SLURM talk to meanwhile."""
    before = os.environ.get("SLURM_CONF")
    cluster = Cluster(folder, **size)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        if before is None:
            os.environ.pop("SLURM_CONF", None)
        else:
            os.environ["SLURM_CONF"] = before
