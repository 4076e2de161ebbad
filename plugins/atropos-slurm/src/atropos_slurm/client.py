"""Talking to SLURM's commands: a clean environment, their own words in errors, answers as records."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from atropos_cli.sdk.launchers import JobState, LaunchError, LauncherSilent
from atropos_slurm.site import REACH

_LEAKS = re.compile(
    r"(?:SLURM|SBATCH|SRUN|SALLOC|PMI|PMIX|OMPI|HYDRA)_?.*|PMI\w*"
    r"|(?:RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK)|MASTER_(?:ADDR|PORT)"
)
_UNREACHABLE = re.compile(
    r"configuration source|slurm_conf_init|Unable to contact|Unable to connect|[Cc]onnect(?:ion)? (?:failure|refused)"
    r"|[Ss]ocket timed out|timed out|Communication (?:connection|shutdown)|Zero Bytes were transmitted"
    r"|in standby mode|Unable to establish|Transport endpoint|[Pp]rotocol authentication error"
)
_NOT_KNOWN = "Invalid job id"
_ID = re.compile(r"\d+(?:;\S+)?")
_STATES: dict[str, JobState] = {
    "PENDING": "pending",
    "CONFIGURING": "pending",
    "REQUEUED": "pending",
    "REQUEUE_HOLD": "pending",
    "REQUEUE_FED": "pending",
    "SPECIAL_EXIT": "pending",
    "RESV_DEL_HOLD": "pending",
    "SUSPENDED": "running",
    "STOPPED": "running",
    "RUNNING": "running",
    "COMPLETING": "running",
    "RESIZING": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "running",
    "COMPLETED": "finished",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
}


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What SLURM knows of a job, or of one task of an array (task is then its index or range)."""

    id: str
    state: JobState
    slurm_state: str
    reason: str = ""
    code: int = 0
    signal: int = 0
    name: str = ""
    nodes: str = ""
    output: str = ""
    task: str | None = None
    restarts: int = 0
    run_time: str = ""
    submitted: str = ""


class NoCluster(LauncherSilent):
    """SLURM's commands are here, and no cluster answers them."""


def clean_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for sbatch: nothing of a job we may be in, nothing that overrides our script."""
    env = os.environ if environ is None else environ
    return {name: value for name, value in env.items() if name in REACH or not _LEAKS.fullmatch(name)}


def call(*command: str, timeout: float = 60.0, messages: bool = False) -> str:
    """The standard output of a SLURM command (messages: its standard error). Raises LaunchError with its words."""
    if shutil.which(command[0]) is None:
        raise LaunchError(
            f"{command[0]} is not on the PATH: SLURM is not installed on this machine",
            hint="log in to the cluster's login node, or load its module",
        )
    try:
        done = subprocess.run(  # noqa: S603 - fixed programs, arguments without a shell
            command, capture_output=True, text=True, errors="replace", timeout=timeout, env=_environment(command[0])
        )
    except subprocess.TimeoutExpired as error:
        raise NoCluster(f"{command[0]} did not answer within {timeout:.0f} s", hint="is slurmctld up?") from error
    except OSError as error:
        raise LaunchError(f"{command[0]} cannot be started: {error.strerror}") from error
    if done.returncode:
        text = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}")[:2000]
        if _UNREACHABLE.search(text):
            raise NoCluster(
                f"{command[0]}: no cluster answers: {text}", hint="log in to the cluster, or set SLURM_CONF"
            )
        raise LaunchError(f"{command[0]}: {text}")
    return done.stderr if messages else done.stdout


def _environment(program: str) -> dict[str, str]:
    """Times in answers do not depend on where and how somebody asks; a job gets the environment as it is.

    SLURM_BITSTR_LEN: SLURM cuts the list of an array's waiting tasks to 64 characters otherwise.
    """
    env = clean_environment()
    asking = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard", "SLURM_BITSTR_LEN": "0"}
    return env if program == "sbatch" else {**env, **asking}


def job_id_of(output: str) -> str:
    """The id in the output of `sbatch --parsable`, which sites surround with lines of their own."""
    for line in reversed(output.splitlines()):
        if _ID.fullmatch(line.strip()):
            return line.strip()
    raise LaunchError(f"sbatch printed no job id: {output.strip()[:500]!r}")


def queued_id(script: Path, *, patience: float, clusters: str = "") -> str | None:
    """The id of the job that SLURM has of this script, though the answer of sbatch was lost; asked for some seconds.

    clusters: those that sbatch was to choose from. Raises LauncherSilent when SLURM does not say whether there is one:
    then another must not be submitted.
    """
    chosen = [f"--clusters={clusters}"] if clusters else []
    deadline = time.monotonic() + patience
    while True:
        try:
            text = call("squeue", *chosen, "-h", "--me", "-o", "%F|%o")
            break
        except LauncherSilent as error:
            if time.monotonic() > deadline:
                hint = f"it may have the job all the same; when it answers: squeue --me -o '%F %o' shows {script}"
                raise LauncherSilent(f"SLURM does not answer: {error.message}", hint=hint) from error
            time.sleep(1.0)
    found, cluster = [], ""
    for line in text.splitlines():
        number, bar, path = line.partition("|")
        if not bar and line.startswith("CLUSTER:"):
            cluster = ";" + line.partition(":")[2].strip()
        elif path == str(script):
            found.append((int(number), f"{number}{cluster}"))
    return max(found)[1] if found else None


def in_federation(cluster: str) -> bool:
    """Is a cluster in one federation with this one? Then ids are the same on all, and jobs wait for each other."""
    try:
        text = call("scontrol", "show", "federation")
    except LaunchError:
        return False
    return cluster in re.findall(r"^\s*(?:Self|Sibling):\s*([^\s:]+)", text, re.MULTILINE)


def on_cluster(job_id: str) -> tuple[list[str], str]:
    """(options that choose the cluster, the bare id) of ID or ID;CLUSTER."""
    bare, _, cluster = job_id.partition(";")
    return ([f"--clusters={cluster}"] if cluster else []), bare


def show_job(job_id: str) -> list[JobRecord]:
    """All records of a job, one for each task of an array; [] when SLURM, asked, does not know it (any more).

    scontrol first, then the accounting data base, then the file of ended jobs, whichever the cluster has. Raises
    LauncherSilent when one of them should know and does not answer.
    """
    cluster, bare = on_cluster(job_id)
    text = ""
    try:
        text = call("scontrol", *cluster, "show", "job", "-o", bare)
    except LaunchError as error:
        if "not on the PATH" in error.message or isinstance(error, LauncherSilent):
            raise
        if _NOT_KNOWN not in error.message:
            raise LauncherSilent(error.message, hint=error.hint) from error
    found = [record for line in text.splitlines() if (record := _from_scontrol(line)) is not None]
    return found or _from_accounting(cluster, bare)


def cluster_name() -> str | None:
    """The name of the cluster that answers here; None when it has none. Raises LauncherSilent."""
    match = re.search(r"^ClusterName\s*=\s*(\S+)", call("scontrol", "show", "config"), re.MULTILINE)
    return match[1] if match else None


def _from_scontrol(line: str) -> JobRecord | None:
    fields: dict[str, str] = {}
    for match in re.finditer(r"(?:^| )([A-Za-z/:]+)=(.*?)(?= [A-Za-z/:]+=|$)", line):
        fields.setdefault(match[1], match[2].strip())
    if "JobId" not in fields:
        return None
    code, _, number = fields.get("ExitCode", "0:0").partition(":")
    state = fields.get("JobState", "UNKNOWN")
    return JobRecord(
        id=fields["JobId"],
        state=state_of(state),
        slurm_state=state,
        reason=fields.get("Reason", "").replace("_", " "),
        code=_number(code),
        signal=_number(number),
        name=fields.get("JobName", ""),
        nodes="" if fields.get("NodeList") == "(null)" else fields.get("NodeList", ""),
        output=fields.get("StdOut", ""),
        task=fields.get("ArrayTaskId"),
        restarts=_number(fields.get("Restarts", "0")),
        run_time=fields.get("RunTime", ""),
        submitted=fields.get("SubmitTime", ""),
    )


def _from_accounting(cluster: Sequence[str], job_id: str) -> list[JobRecord]:
    columns = "JobID,State,ExitCode,JobName,NodeList"
    for options in (("-X",), ("-c",)):
        if shutil.which("sacct") is None:
            return []
        try:
            text = call("sacct", *cluster, *options, "-n", "-P", "-j", job_id, "-o", columns)
        except LauncherSilent:
            if options == ("-X",):  # there is a data base, which may know the job
                raise
            continue
        except LaunchError:  # it is not set up here
            continue
        found = [record for line in text.splitlines() if (record := _from_sacct(line)) is not None]
        if found:
            return found
    return []


def _from_sacct(line: str) -> JobRecord | None:
    parts = line.split("|")
    if len(parts) < 5 or "." in parts[0]:
        return None
    state = parts[1].split()[0] if parts[1].split() else "UNKNOWN"  # "CANCELLED by 1000"
    code, _, number = parts[2].partition(":")
    job, _, task = parts[0].partition("_")
    return JobRecord(
        id=job,
        state=state_of(state),
        slurm_state=state,
        code=_number(code),
        signal=_number(number),
        name=parts[3],
        nodes=parts[4],
        task=task or None,
    )


def state_of(text: str) -> JobState:
    """Our word for one of SLURM's; what is neither waiting, running, done nor cancelled has failed."""
    if text in ("UNKNOWN", ""):
        return "unknown"
    return _STATES.get(text.rstrip("+"), "failed")


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def array_limit() -> int | None:
    """The most tasks one array may have here (MaxArraySize bounds the highest index); None when not told."""
    try:
        text = call("scontrol", "show", "config")
    except LaunchError:
        return None
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else None
