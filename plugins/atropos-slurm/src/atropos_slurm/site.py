"""Variables that a site or a user sets for sbatch: which become options of a job, and which are left out, and why.

sbatch would let them override the lines of the script, so it never sees them: a variable that is used becomes a line of
the script, where a dry run shows it. An option that the command, the profile or --sbatch gives wins.
"""

from __future__ import annotations

from collections.abc import Mapping

USED: dict[str, str] = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_ACCTG_FREQ": "acctg-freq",
    "SBATCH_BATCH": "batch",
    "SBATCH_CLUSTERS": "clusters",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_CORE_SPEC": "core-spec",
    "SBATCH_DELAY_BOOT": "delay-boot",
    "SBATCH_DISTRIBUTION": "distribution",
    "SBATCH_EXCLUSIVE": "exclusive",
    "SBATCH_GPU_FREQ": "gpu-freq",
    "SBATCH_GRES_FLAGS": "gres-flags",
    "SBATCH_HINT": "hint",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_NETWORK": "network",
    "SBATCH_PARTITION": "partition",
    "SBATCH_PROFILE": "profile",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_SPREAD_JOB": "spread-job",
    "SBATCH_THREAD_SPEC": "thread-spec",
    "SBATCH_TIMELIMIT": "time",
    "SBATCH_USE_MIN_NODES": "use-min-nodes",
    "SBATCH_WCKEY": "wckey",
}
"""Variable -> the option of sbatch that it becomes when nothing else gives that option."""

_SIZES = "the job's sizes come from its command"
_DECIDED = "atropos decides it"
LEFT_OUT: dict[str, str] = {
    "SBATCH_ARRAY_INX": "use --array",
    "SBATCH_CONTAINER": "use container in the profile",
    "SBATCH_CPUS_PER_GPU": f"{_SIZES}: use --cpus",
    "SBATCH_ERROR": _DECIDED,
    "SBATCH_EXPORT": "the whole environment is handed on; use --env",
    "SBATCH_GET_USER_ENV": "the whole environment is handed on",
    "SBATCH_GPUS": f"{_SIZES}: use --gpus-per-node",
    "SBATCH_GPUS_PER_NODE": f"{_SIZES}: use --gpus-per-node",
    "SBATCH_GPUS_PER_TASK": f"{_SIZES}: use --gpus-per-node",
    "SBATCH_GPU_BIND": "each program gets its own GPUs",
    "SBATCH_GRES": f"{_SIZES}: use --gpus-per-node",
    "SBATCH_INPUT": _DECIDED,
    "SBATCH_JOB_NAME": "use --name",
    "SBATCH_MEM_BIND": _DECIDED,
    "SBATCH_MEM_PER_CPU": f"{_SIZES}: use --mem",
    "SBATCH_MEM_PER_GPU": f"{_SIZES}: use --mem",
    "SBATCH_NO_KILL": _DECIDED,
    "SBATCH_NO_REQUEUE": "use --requeue",
    "SBATCH_OPEN_MODE": _DECIDED,
    "SBATCH_OUTPUT": _DECIDED,
    "SBATCH_OVERCOMMIT": _DECIDED,
    "SBATCH_REQUEUE": "use --requeue",
    "SBATCH_SIGNAL": "use --signal-before",
    "SBATCH_WAIT": "use --wait",
}
"""Variable -> why it is not used. Others of sbatch are left out without a reason."""

REACH = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_TIME_FORMAT"})
"""What says how to reach the cluster: SLURM's commands get it as it is."""
_SWITCHES = frozenset({"exclusive", "spread-job", "use-min-nodes"})
_SILENT = frozenset({"SBATCH_DEBUG", "SBATCH_IGNORE_PBS"})
_ON = ("", "1", "yes", "true")


def site_options(environ: Mapping[str, str], given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """(options that only the environment gives, a line for each variable that is left out)."""
    options: dict[str, str] = {}
    left = []
    for name, value in sorted(environ.items()):
        if not name.startswith("SBATCH_") or name in _SILENT:
            continue
        option = USED.get(name)
        if option is None:
            left.append(f"{name}={value} is not used: {LEFT_OUT.get(name, 'give the option by --sbatch')}")
        elif option in given:
            if given[option] != value:
                left.append(f"{name}={value} is not used: the job has --{option}={given[option]}")
        elif value or option in _SWITCHES:
            options[option] = "" if option in _SWITCHES and value.lower() in _ON else value
    return options, left
