"""Components as steps of a SLURM job: one `srun --overlap` each, from inside the allocation.

SIGTERM to an srun client kills its task at once, without grace; so a step is stopped with
`scancel --signal=URG JOB.STEP`. That reaches every process of the step: all ignore it but the component's
parent, which stops its program politely.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from atropos_cli.domain.job import Component
from atropos_cli.errors import LaunchError
from atropos_cli.jobs import node
from atropos_cli.jobs.folder import read_record
from atropos_cli.jobs.placing import NODE_MODULE, Cause

_KILL_WAIT = 30.0
_TRIES, _BETWEEN = 8, 4.0
_SILENT = re.compile(r"[Uu]nable to contact|[Cc]onnect|timed out", re.IGNORECASE)
_STARTS = 120
"""How often a step is started when the controller does not answer: about half an hour."""
_HELD = re.compile(r"Memory required by task is not available|Requested nodes are busy")
_HELD_STARTS = 30
"""How often when resources of the job are not free: about two minutes.

A step that ended while the controller was down is running for it until the node has reported its end.
"""


def slurm(*command: str, timeout: float = 30.0) -> str:
    """The standard output of a SLURM command. Raises LaunchError with its own words."""
    try:
        env = {**os.environ, "SLURM_TIME_FORMAT": "standard"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise LaunchError(f"{' '.join(command[:3])}: {(done.stderr or done.stdout).strip() or done.returncode}")
    return done.stdout


def per_node(text: str, nodes: int) -> list[int]:
    """SLURM's compressed list of numbers, "4(x2),8": one for each node. Missing ones repeat the last."""
    found: list[int] = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        found += [int(number)] * int(times or 1)
    if not found:
        return [1] * nodes
    return (found + [found[-1]] * nodes)[:nodes]


class SrunStep:
    """A component in a step of its own. It is started again while the controller is silent: srun gives up soon.

    So it is while the controller takes an earlier step for a running one.
    """

    def __init__(self, launch: Callable[[], subprocess.Popen[bytes]], endpoint: Path, log: Path) -> None:
        self._launch, self._endpoint, self._log = launch, endpoint, log
        self._before = read_record(endpoint)
        self._starts = self._held = 0
        self._again: float | None = None
        self._stopped = False
        self._start()

    def _start(self) -> None:
        self._starts += 1
        self._told = self._log.stat().st_size if self._log.exists() else 0
        self._client = self._launch()

    def poll(self) -> int | None:
        code = self._client.poll()
        if code and self._again is None and self._unheard():
            self._again = time.monotonic() + _BETWEEN
        if self._again is not None and not self._stopped:
            if time.monotonic() >= self._again:
                self._again = None
                self._start()
            return None
        return 128 - code if code is not None and code < 0 else code

    def _unheard(self) -> bool:
        """Has nothing been started on the node, for a reason that passes?"""
        if self._stopped or self._starts >= _STARTS or read_record(self._endpoint) != self._before:
            return False
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            file.seek(self._told)
            lines = file.read(10_000).decode("utf-8", "replace").splitlines()
            errors = [line for line in lines if line.startswith("srun: error:")]
            if any(map(_HELD.search, errors)):
                self._held += 1
                return self._held < _HELD_STARTS
            return any(map(_SILENT.search, errors))
        return False

    def stop(self) -> None:
        self._stopped = True
        self._signal("URG")  # does nothing before it is on its node: the supervisor asks again

    def kill(self) -> None:
        self._stopped = True
        if self._client.poll() is None:
            self._signal("KILL")
            self._client.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._client.wait(20)
            return
        self._client.kill()
        self._client.wait()

    def _signal(self, name: str) -> bool:
        """Signal all processes of the step, once its parent has published which step it is."""
        step = (read_record(self._endpoint) or {}).get("step")
        if not step:
            return False
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            command = ["scancel", f"--signal={name}", str(step)]
            return subprocess.run(command, capture_output=True, timeout=30).returncode == 0  # noqa: S603
        return False


class SrunPlacer:
    """Starts components in the allocation that this process runs in. Raises LaunchError outside of one."""

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        env = os.environ if environ is None else environ
        try:
            self.job_id: str | None = node.slurm_job(env)
            if self.job_id is None:
                raise KeyError("SLURM_JOB_ID")
            self.nodes = tuple(slurm("scontrol", "show", "hostnames", env["SLURM_JOB_NODELIST"]).split())
        except KeyError as error:
            raise LaunchError("this is no SLURM job", hint="submit it: atropos slurm submit") from error
        self.restarts = int(env.get("SLURM_RESTART_COUNT", "0") or 0)
        self.stop_within: float | None = _kill_wait()
        self._cpus = per_node(env.get("SLURM_JOB_CPUS_PER_NODE", ""), len(self.nodes))

    def command(self, component: Component, folder: Path) -> list[str]:
        """The srun call that starts a component."""
        if component.python is None:
            program = [sys.executable, "-P", "-m", NODE_MODULE]
        else:  # another interpreter, in a container perhaps, which need not have atropos installed
            program = [component.python, str(Path(node.__file__).resolve())]
        return [
            "srun",
            "--overlap",
            "--nodes=1",
            "--ntasks=1",
            f"--nodelist={self.nodes[component.node]}",
            f"--cpus-per-task={self._cpus[component.node]}",
            "--export=ALL",
            "--unbuffered",
            "--quiet",
            f"--job-name={component.name}",
            *component.step_options,
            *program,
            str(folder),
            component.name,
        ]

    def start(self, component: Component, folder: Path, log: Path) -> SrunStep:
        env = dict(os.environ)
        # Set by `sbatch --export=X`; it would take PATH away from every step.
        env.pop("SLURM_EXPORT_ENV", None)

        def launch() -> subprocess.Popen[bytes]:
            with log.open("ab") as output:
                return subprocess.Popen(  # noqa: S603
                    self.command(component, folder),
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # signals for the batch script must not reach the client
                )

        try:
            return SrunStep(launch, folder / "endpoints" / f"{component.name}.json", log)
        except OSError as error:
            raise LaunchError(f"srun cannot be started: {error.strerror}") from error

    def cause(self) -> Cause | None:
        """SLURM notes when it began to preempt a job. At a time limit the job's end has come."""
        assert self.job_id is not None
        try:
            text = slurm("scontrol", "show", "job", "-o", self.job_id)
        except LaunchError:
            return None
        fields = dict(re.findall(r"(\w+)=(\S*)", text))
        started, preempted = _date(fields.get("StartTime")), _date(fields.get("PreemptTime"))
        if preempted is not None and (started is None or preempted >= started):  # and not of a start before this one
            return "preempted"
        limit, ran = _seconds(fields.get("TimeLimit")), _seconds(fields.get("RunTime"))
        return "time limit" if limit is not None and ran is not None and ran >= limit else None

    def requeue(self) -> None:
        """Queue again; a controller that does not answer is asked again for half a minute."""
        assert self.job_id is not None
        for turn in range(_TRIES):
            try:
                slurm("scontrol", "requeue", self.job_id)
            except LaunchError as error:
                if turn == _TRIES - 1 or not _SILENT.search(error.message):
                    raise
                time.sleep(_BETWEEN)
            else:
                return


def _date(text: str | None) -> datetime | None:
    """A time of SLURM's, in the zone of this process; None for other words (None, N/A, Unknown)."""
    try:
        return datetime.fromisoformat(text or "")
    except ValueError:
        return None


def _seconds(text: str | None) -> int | None:
    """SLURM's [DAYS-]HH:MM:SS; None for other words (UNLIMITED)."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text or "")
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _kill_wait() -> float:
    """Seconds from SLURM's SIGTERM to its SIGKILL."""
    try:
        found = re.search(r"^KillWait\s*=\s*(\d+)", slurm("scontrol", "show", "config"), re.MULTILINE)
    except LaunchError:
        return _KILL_WAIT
    return float(found[1]) if found else _KILL_WAIT
