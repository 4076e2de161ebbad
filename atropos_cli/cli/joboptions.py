"""The options of the commands of `atropos job`, and of a launcher's own group: `atropos slurm`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from atropos_cli.config.commands import CommandOptions, option

SIZE, SERVERS, JOB, CODE = "What the job needs", "Servers", "The job", "Its code"


class Engine(StrEnum):
    """Servers that a job can start: inference servers, or `atropos serve`."""

    sglang = "sglang"
    vllm = "vllm"
    trajectories = "trajectories"


class ProfileOptions(CommandOptions):
    """The launcher's options, as a file has them."""

    profile: str | None = option(None, "Profile of the launcher: [job.profiles.NAME], [slurm.profiles.NAME].")


class WhichOptions(ProfileOptions):
    """Which jobs are meant."""

    only: str | None = option(None, "Only jobs of this launcher.", flag="on", metavar="LAUNCHER")


class SubmitOptions(ProfileOptions):
    """What a job needs, its servers, and what becomes of it."""

    on: str | None = option(None, "What starts it: slurm, tmux, ...", metavar="LAUNCHER")
    on_option: tuple[str, ...] = option((), "An option of the launcher.", panel=JOB, metavar="KEY=VALUE")
    nodes: int = option(1, "Nodes.", panel=SIZE, ge=1)
    gpus_per_node: int = option(0, "GPUs on each.", panel=SIZE, ge=0)
    cpus: int | None = option(None, "CPU cores on each node.", panel=SIZE, ge=1)
    mem: str | None = option(None, "Memory of each node: 64G, 1.5G; 0 is all.", panel=SIZE, metavar="SIZE")
    time: str | None = option(None, "Time limit: 2h, 90m, 1d12h, D-HH:MM:SS.", panel=SIZE, metavar="TIME")
    array: int | None = option(
        None, "gen in N shards, each a job; they merge by themselves.", panel=SIZE, metavar="N", ge=1
    )
    array_limit: int | None = option(None, "Shards that may run at once.", panel=SIZE, ge=1)
    serve: Engine | None = option(None, "Start servers beside the command.", panel=SERVERS)
    model: str | None = option(None, "Model they serve.  [default: --model of the command]", panel=SERVERS)
    tp: int | None = option(None, "GPUs that share one copy of the model.", panel=SERVERS, ge=1)
    dp: int | None = option(None, "Independent servers.", panel=SERVERS, ge=1)
    engine_python: str | None = option(None, "Interpreter that has the engine.", panel=SERVERS, metavar="PATH")
    server_option: tuple[str, ...] = option(
        (), "A word for the server: --server-option=--trust-remote-code.", panel=SERVERS, metavar="WORD"
    )
    start_timeout: float = option(1800.0, "Seconds until all servers must be ready.", panel=SERVERS, ge=1)
    name: str | None = option(None, "The job's name.  [default: from the command]", panel=JOB)
    folder: Path | None = option(
        None, "The job's folder.  [default: --output of gen, or in runs/]", panel=JOB, metavar="DIR"
    )
    after: tuple[str, ...] = option((), "Start when that job has succeeded.", panel=JOB, metavar="JOB")
    env: tuple[str, ...] = option(
        (), "A variable for the job; NAME alone must be set here.", panel=JOB, metavar="NAME[=VALUE]"
    )
    requeue: bool = option(False, "Stop before the time limit, save, queue again, resume there.", panel=JOB)
    max_requeues: int = option(10, "How often.", panel=JOB, ge=0)
    signal_before: int | None = option(None, "Seconds before the limit.  [default: 120]", panel=JOB, metavar="S", ge=1)
    sbatch: tuple[str, ...] = option((), "Another option of sbatch.", panel=JOB, metavar="KEY[=VALUE]")
    sync: Path | None = option(
        None,
        "Run in a copy of this folder, in the job's folder; what git ignores stays out.",
        panel=CODE,
        metavar="DIR",
    )
    sync_limit: str = option("1G", "The most that is copied.", panel=CODE, metavar="SIZE")
    setup: tuple[str, ...] = option(
        (), "A line of bash before everything else; a failing one ends the job.", panel=CODE, metavar="LINE"
    )
    check: bool = option(True, "Let gen, eval and train check their options first.")
    wait: bool = option(False, "Wait for the end; exit with the job's code.")
    dry_run: bool = option(False, "Print script, plan and call; submit nothing.")


class LogsOptions(WhichOptions):
    """Which lines are printed."""

    follow: bool = option(False, "Go on until the job ends.", short="f")
    shard: int | None = option(None, "A shard of an array.", ge=0)


class ListOptions(WhichOptions):
    """How many are listed."""

    all: bool = option(False, "All, and not only the newest 20.")
