"""What this machine is: GPUs, CPUs, memory, SLURM. Found by asking programs and files; no model library is imported.

platform = detect()
platform.profile            v100, a100, h100, h200, b200, gpu (another NVIDIA GPU), rocm, cpu
platform.gpus               the GPUs this process may use: CUDA_VISIBLE_DEVICES narrows the list
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from atropos_cli.serving.mig import instances

BF16_FROM = (8, 0)
"""The first compute capability with bfloat16 arithmetic."""

_FIELDS = ("index", "name", "memory.total", "memory.used", "driver_version", "uuid", "mig.mode.current")
_CAPABILITIES = {  # for drivers that cannot be asked (before 510)
    "V100": (7, 0),
    "T4": (7, 5),
    "A100": (8, 0),
    "A30": (8, 0),
    "A10": (8, 6),
    "A40": (8, 6),
    "L4": (8, 9),
    "L40": (8, 9),
    "L40S": (8, 9),
    "H100": (9, 0),
    "H200": (9, 0),
    "GH200": (9, 0),
    "B200": (10, 0),
    "GB200": (10, 0),
}
_PROFILES = {"V100": "v100", "A100": "a100", "H100": "h100", "H200": "h200", "GH200": "h200", "B200": "b200"}
_PROFILES["GB200"] = "b200"
_UNLIMITED = 1 << 60  # cgroup v1 writes a number of about this size for "no limit"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU, or an instance of a divided one. token: how CUDA_VISIBLE_DEVICES names it here.

    Memory in MiB, 0 where it is not known; used_mib may be unknown. mig: it is divided, or is such an instance.
    """

    index: int
    name: str
    memory_mib: int
    used_mib: int | None
    capability: tuple[int, int] | None
    driver: str
    uuid: str
    mig: bool = False
    token: str = ""

    @property
    def bf16(self) -> bool | None:
        """Can it calculate in bfloat16? None: its compute capability is not known."""
        return None if self.capability is None else self.capability >= BF16_FROM

    @property
    def profile(self) -> str:
        """The profile whose defaults fit."""
        return next((_PROFILES[word] for word in _words(self.name) if word in _PROFILES), "gpu")


@dataclass(frozen=True, slots=True)
class Slurm:
    """The visible facts about SLURM. job: the id of the job we are in. gpus: of this node, as the job has them."""

    sbatch: str | None = None
    job: str | None = None
    nodes: int | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Platform:
    """The machine. problem: why existing GPUs cannot be used or identified. memory in bytes; cpus may be a fraction."""

    profile: str
    gpus: tuple[Gpu, ...] = ()
    all_gpus: int = 0
    cpus: float = 1.0
    memory: int | None = None
    slurm: Slurm = field(default_factory=Slurm)
    problem: str | None = None

    @property
    def gpu_memory_mib(self) -> int | None:
        """Of the smallest GPU: what every one has."""
        return min((gpu.memory_mib for gpu in self.gpus), default=None)

    @property
    def bf16(self) -> bool | None:
        """True only when every GPU can; None for no GPU, or where one is unknown."""
        found = [gpu.bf16 for gpu in self.gpus]
        if not found or (None in found and False not in found):
            return None
        return all(found)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The GPUs as CUDA_VISIBLE_DEVICES would name them."""
        return tuple(gpu.token for gpu in self.gpus)

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return {
            "profile": self.profile,
            "gpus": [
                {
                    "index": gpu.index,
                    "name": gpu.name,
                    "memory_mib": gpu.memory_mib,
                    "used_mib": gpu.used_mib,
                    "compute_capability": None if gpu.capability is None else "{}.{}".format(*gpu.capability),
                    "bf16": gpu.bf16,
                    "driver": gpu.driver,
                    "visible_as": gpu.token,
                }
                for gpu in self.gpus
            ],
            "gpus_on_machine": self.all_gpus,
            "cpus": self.cpus,
            "memory_bytes": self.memory,
            "slurm": {
                "sbatch": self.slurm.sbatch,
                "job": self.slurm.job,
                "nodes": self.slurm.nodes,
                "gpus_on_node": self.slurm.gpus,
            },
            "problem": self.problem,
        }


def detect(environ: Mapping[str, str] | None = None, *, root: Path = Path("/")) -> Platform:
    """Look at this machine. environ: in place of os.environ; root: where /proc and /sys are (for tests)."""
    env = os.environ if environ is None else environ
    found, problem = _nvidia(env)
    parts = _parts(found, env)
    visible, hidden = _visible(found, parts, env.get("CUDA_VISIBLE_DEVICES"))
    problem = problem or hidden
    if visible:
        profiles = {gpu.profile for gpu in visible}
        profile = profiles.pop() if len(profiles) == 1 else "gpu"
    elif not found and _rocm(env, root):
        profile, problem = "rocm", "an AMD GPU may be here; profiles for ROCm are not known: give the options yourself"
    else:
        profile = "cpu"
    cpus, memory = _limits(root)
    return Platform(profile, visible, len(found), cpus, memory, _slurm(env), problem)


# GPUs ----------------------------------------------------------------------------------------------------------------


def _nvidia(env: Mapping[str, str]) -> tuple[list[Gpu], str | None]:
    program = shutil.which("nvidia-smi", path=env.get("PATH"))
    if program is None:
        return [], None
    text, error = _query(program, (*_FIELDS, "compute_cap"))
    if text is None and error is not None and "not a valid field" in error:
        text, error = _query(program, _FIELDS)
    if text is None:
        return [], f"nvidia-smi: {error}"
    gpus = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        gpu = _gpu([cell.strip() for cell in row])
        if gpu is None:
            return [], f"nvidia-smi printed a line that cannot be read: {', '.join(row)[:100]!r}"
        gpus.append(gpu)
    return gpus, None


def _query(program: str, fields: tuple[str, ...]) -> tuple[str | None, str | None]:
    """(answer, None) or (None, error)."""
    command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return None, "no answer within 20 s (a GPU may hang)"
    except OSError as error:
        return None, error.strerror or str(error)
    if done.returncode == 0:
        return done.stdout, None
    lines = (done.stdout + done.stderr).strip().splitlines()
    return None, lines[0] if lines else f"exit code {done.returncode}"


def _gpu(cells: list[str]) -> Gpu | None:
    if len(cells) < len(_FIELDS) or not cells[0].isdigit():
        return None
    index, name, total, used, driver, uuid, mig = cells[: len(_FIELDS)]
    asked = re.fullmatch(r"(\d+)\.(\d+)", cells[len(_FIELDS)]) if len(cells) > len(_FIELDS) else None
    if asked is not None:
        capability: tuple[int, int] | None = (int(asked[1]), int(asked[2]))
    else:
        capability = next((_CAPABILITIES[word] for word in _words(name) if word in _CAPABILITIES), None)
    # "[N/A]" stands where there is nothing to say, as for the memory of GPUs that share the machine's.
    memory = int(total) if total.isdigit() else 0
    return Gpu(
        index=int(index),
        name=name,
        memory_mib=memory,
        used_mib=int(used) if used.isdigit() else None,
        capability=capability,
        driver=driver,
        uuid=uuid,
        mig=mig == "Enabled",
        token=index,
    )


def _words(name: str) -> list[str]:
    return re.split(r"[^A-Za-z0-9]+", name.upper())


def _parts(gpus: list[Gpu], env: Mapping[str, str]) -> list[Gpu]:
    """The instances of those GPUs that are divided, as GPUs of their own size."""
    program = shutil.which("nvidia-smi", path=env.get("PATH"))
    if program is None or not any(gpu.mig for gpu in gpus):
        return []
    try:
        done = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return []
    whole = {gpu.index: gpu for gpu in gpus if gpu.mig}
    return [
        replace(
            whole[item.gpu],
            name=f"{whole[item.gpu].name} MIG {item.profile}",
            memory_mib=item.memory_mib,
            used_mib=None,
            uuid=item.uuid,
            token=item.uuid,
        )
        for item in instances(done.stdout)
        if item.gpu in whole
    ]


def _visible(gpus: list[Gpu], parts: list[Gpu], variable: str | None) -> tuple[tuple[Gpu, ...], str | None]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order and spelling. A number beyond the end hides the rest."""
    if variable is None or not gpus:
        return tuple(part for gpu in gpus for part in (_parts_of(gpu, parts) or [gpu])), None
    chosen: list[Gpu] = []
    for token in (part.strip() for part in variable.split(",")):
        gpu = _named(token, gpus, parts)
        if gpu is None:
            break
        chosen.append(replace(gpu, token=token))
    wanted = [part for part in variable.split(",") if part.strip() and part.strip() != "-1"]
    if len(chosen) < len(wanted):
        return tuple(chosen), f"CUDA_VISIBLE_DEVICES={variable}: {wanted[len(chosen)].strip()!r} names no GPU here"
    return tuple(chosen), None


def _parts_of(gpu: Gpu, parts: list[Gpu]) -> list[Gpu]:
    return [part for part in parts if part.index == gpu.index]


def _named(token: str, gpus: list[Gpu], parts: list[Gpu]) -> Gpu | None:
    """The GPU or instance of this name; None for none, or for several. Of a divided GPU CUDA takes the first part."""
    if token.startswith("MIG-"):
        match = [part for part in parts if part.uuid == token] or [p for p in parts if p.uuid.startswith(token)]
        if len(match) == 1 or len(token) <= 4:
            return match[0] if len(match) == 1 else None
        return _unlisted(token, gpus) if not parts else None
    if token.isdigit():
        match = [gpu for gpu in gpus if gpu.index == int(token)]
    else:
        match = [gpu for gpu in gpus if len(token) > 4 and gpu.uuid.startswith(token)]
    if len(match) != 1:
        return None
    return next(iter(_parts_of(match[0], parts)), match[0])


def _unlisted(token: str, gpus: list[Gpu]) -> Gpu | None:
    """An instance of which nvidia-smi lists none, as in some containers: its GPU's kind, and no known size."""
    whole = [gpu for gpu in gpus if token.startswith(f"MIG-{gpu.uuid}")] or [gpu for gpu in gpus if gpu.mig]
    if not whole or len({gpu.name for gpu in whole}) > 1:
        return None
    return replace(whole[0], name=f"{whole[0].name} MIG", memory_mib=0, used_mib=None, uuid=token, mig=True)


def _rocm(env: Mapping[str, str], root: Path) -> bool:
    path = env.get("PATH")
    programs = any(shutil.which(name, path=path) for name in ("rocm-smi", "amd-smi"))
    return programs or (root / "dev" / "kfd").exists()


# CPUs, memory, SLURM -------------------------------------------------------------------------------------------------


def _limits(root: Path) -> tuple[float, int | None]:
    """(CPUs, bytes of memory) that this process may use: affinity and control groups."""
    cpus = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    memory: int | None = None
    for line in _read(root / "proc" / "meminfo").splitlines():
        if line.startswith("MemTotal:"):
            memory = int(line.split()[1]) << 10
    for folder in _groups(root):
        quota = _read(folder / "cpu.max").split() or [
            _read(folder / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        ]
        if len(quota) == 2 and all(part.isdigit() for part in quota) and int(quota[1]):
            cpus = min(cpus, int(quota[0]) / int(quota[1]))
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _read(folder / name).strip()
            if limit.isdigit() and int(limit) < _UNLIMITED:
                memory = int(limit) if memory is None else min(memory, int(limit))
    return round(cpus, 2), memory


def _groups(root: Path) -> list[Path]:
    """Our control groups and all that they lie in, of either version."""
    found = []
    for line in _read(root / "proc" / "self" / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, inner = rest.partition(":")
        top = root / "sys" / "fs" / "cgroup" / controllers
        place = top / inner.lstrip("/")
        while True:
            found.append(place)
            if place == top or place == place.parent or ".." in place.parts:
                break
            place = place.parent
        found.append(top)
    return list(dict.fromkeys(found))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _slurm(env: Mapping[str, str]) -> Slurm:
    def number(name: str) -> int | None:
        text = env.get(name, "")
        return int(text) if text.isdigit() else None

    return Slurm(
        sbatch=shutil.which("sbatch", path=env.get("PATH")),
        job=env.get("SLURM_JOB_ID") or None,
        nodes=number("SLURM_JOB_NUM_NODES") or number("SLURM_NNODES"),
        gpus=number("SLURM_GPUS_ON_NODE"),
    )
