"""A cluster's profile: what every job on it needs, kept in [slurm.profiles.NAME] of the configuration."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import field_validator

from atropos_cli.sdk import Config, ConfigError, Field
from atropos_cli.sdk.launchers import Frozen
from atropos_cli.sdk.secrets import learn_secret, looks_secret, names_a_secret

OWN = {
    "array": "--array",
    "chdir": None,
    "cpus-per-task": "--cpus",
    "dependency": "--after",
    "error": None,
    "export": "--env",
    "gpus-per-node": "--gpus-per-node",
    "gres": "--gpus-per-node",
    "job-name": "--name",
    "kill-on-invalid-dep": None,
    "mem": "--mem",
    "nodes": "--nodes",
    "no-requeue": "--requeue",
    "ntasks": None,
    "ntasks-per-node": None,
    "open-mode": None,
    "output": None,
    "parsable": None,
    "requeue": "--requeue",
    "signal": "--signal-before",
    "test-only": "--dry-run",
    "time": "--time",
    "wait": "--wait",
    "wrap": None,
}
"""Options of sbatch that are decided here, and our option for each."""
_KEY = re.compile(r"[a-z][a-z0-9-]*")


class Container(Frozen):
    """Where programs run. apptainer wraps the command; pyxis is told to srun (python3 must be in the image)."""

    runtime: Literal["apptainer", "pyxis"] = Field(default="apptainer", description="apptainer or pyxis.")
    image: str = Field(description="Path or URL of the image.")
    mounts: tuple[str, ...] = Field(default=(), description="SOURCE or SOURCE:TARGET, each.")
    options: tuple[str, ...] = Field(default=(), description="More options of `apptainer exec`, or of srun.")
    components: Literal["services", "all"] = Field(
        default="services", description="services: the servers only; all: the atropos command too."
    )
    python: str = Field(default="python3", description="Interpreter in the image (pyxis).")


class SlurmConfig(Config):
    """One profile. Options on the command line come on top."""

    partition: str | None = Field(default=None, description="Partition.")
    account: str | None = Field(default=None, description="Account that is charged.")
    qos: str | None = Field(default=None, description="Quality of service.")
    constraint: str | None = Field(default=None, description="Features that the nodes must have.")
    time: str | None = Field(default=None, description="Time limit when none is given, such as 24h.")
    cpus: int | None = Field(default=None, ge=1, description="CPU cores per node when none are given.")
    mem: str | None = Field(default=None, description="Memory per node when none is given, such as 64G; 0 is all.")
    gpus_as: Literal["gpus-per-node", "gres"] = Field(
        default="gpus-per-node", description="How this cluster wants to be asked for GPUs."
    )
    gpu_type: str | None = Field(default=None, description="Type of GPU in the request, such as h100.")
    interface: str | None = Field(default=None, description="Network interface whose address servers publish (ib0).")
    setup: tuple[str, ...] = Field(
        default=(), description="Lines of bash before the job: module load, source, export. They run under set -e."
    )
    env: dict[str, str] = Field(default_factory=dict, description="Environment variables of all programs.")
    container: Container | None = Field(default=None, description="Container of the programs.")
    sbatch: dict[str, str] = Field(default_factory=dict, description="More options of sbatch; empty text: a switch.")
    template: str | None = Field(default=None, description="Template of the batch script instead of ours.")
    python: str | None = Field(default=None, description="Interpreter on the nodes, if it is another one than here.")

    @field_validator("env")
    @classmethod
    def _no_secrets(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if value and (names_a_secret(name) or looks_secret(value)):
                learn_secret(value)
                raise ConfigError(
                    f"the SLURM profile sets {name} to what looks like a secret, and it would be written into the plan",
                    hint=f"export {name} in your shell: variables of the shell reach the job",
                )
        return env

    @field_validator("sbatch")
    @classmethod
    def _free(cls, options: dict[str, str]) -> dict[str, str]:
        for key in options:
            check_option(key)
        return options


def check_option(key: str) -> None:
    """Is it an option of sbatch that may be passed through? Raises ValueError."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no long option of sbatch; write its name without dashes in front")
    if key in OWN:
        ours = OWN[key]
        raise ValueError(f"sbatch's --{key} is decided by atropos" + (f": use {ours}" if ours else ""))
