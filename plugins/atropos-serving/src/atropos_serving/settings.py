"""[launch]: what `atropos launch-sglang` and `atropos launch-vllm` can be told, whichever engine it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from atropos_cli.sdk.commands import CommandOptions, option

LAUNCH = "launch"
SERVER, HOW, WHICH = "Server", "How it runs", "Servers that run"


class LaunchSettings(CommandOptions):
    """Everything left out is chosen from the machine, the GPUs and the model."""

    tp: int | None = option(
        None, "GPUs that share one copy of the model; default: from model and GPUs.", panel=SERVER, ge=1
    )
    dp: int | None = option(
        None, "Copies of the model: servers with a port each; default: as many as fit.", panel=SERVER, ge=1
    )
    one_port: bool = option(
        False,
        "One address for all of --dp: the engine's data parallelism; over nodes SGLang's router.",
        panel=SERVER,
    )
    gpus: int | None = option(None, "GPUs to use; default: all that are visible.", panel=SERVER, ge=0)
    host: Literal["127.0.0.1", "0.0.0.0"] = option(  # noqa: S104
        "127.0.0.1", "Address to listen on; 0.0.0.0 lets other hosts in.", panel=SERVER
    )
    port: int | None = option(
        None, "Port of the first server, the others follow; default: a free one.", panel=SERVER, ge=1, le=65535
    )
    dtype: str | None = option(None, "Type of weights and activations; default: by the GPU.", panel=SERVER)
    context: int | None = option(
        None, "Longest prompt plus reply in tokens; default: the model's.", panel=SERVER, ge=16
    )
    max_requests: int | None = option(
        None, "Sequences a server works on at once; default: by the GPU.", panel=SERVER, ge=1
    )
    memory_fraction: float | None = option(
        None, "Share of GPU memory for weights and cache; default: by GPU and engine.", panel=SERVER, gt=0, le=1
    )
    attention_backend: str | None = option(
        None, "The engine's attention kernels; default: the engine's choice, but on old GPUs.", panel=SERVER
    )
    eager: bool | None = option(
        None, "No compilation, no CUDA graphs: starts sooner, runs slower; default: on CPUs only.", panel=SERVER
    )
    seed: int = option(0, "Seed of the server.", panel=SERVER, ge=0)
    served_name: str | None = option(None, "Name that requests use; default: MODEL as given.", panel=SERVER)
    tool_parser: str = option(
        "auto", "The engine's parser of tool calls; auto: by the model's family; none: no parser.", panel=SERVER
    )
    reasoning_parser: str = option(
        "none", "Splits thinking from the reply in the server; auto: by the model's family.", panel=SERVER
    )
    engine_python: str | None = option(
        None, "Python interpreter that has the engine; default: the command on PATH, else this one.", panel=SERVER
    )
    start_timeout: float = option(1800.0, "Seconds until all servers must be ready.", panel=SERVER, gt=0)


class PlaceOptions(CommandOptions):
    """Where servers run, and which of those that run are meant: the same for every command that starts some."""

    name: str | None = option(None, "Name of the server.  [default: the model's]", metavar="NAME")
    detach: bool = option(False, "Return once it is ready; it outlives this session.", panel=HOW)
    tmux: bool = option(False, "As --detach, in a tmux session.", panel=HOW)
    slurm: bool = option(False, "As a SLURM job of --gpus a node.", panel=HOW)
    time: str | None = option(None, "Its time limit: 2h, 1d12h.", panel=HOW, metavar="TIME")
    profile: str | None = option(None, "Cluster profile, [slurm.profiles.NAME].", panel=HOW, metavar="NAME")
    wait: bool = option(True, "With these three: wait until it is ready.", panel=HOW)
    dry_run: bool = option(False, "Print the command lines and stop.", panel=HOW)
    status: bool = option(False, "List servers; with --name one of them.", panel=WHICH)
    stop: bool = option(False, "Stop the server --name, or the only one.", panel=WHICH)
    held: Path | None = option(None, "A folder that is ready to be run.", metavar="DIR", hidden=True)


class LaunchOptions(PlaceOptions, LaunchSettings):
    """The settings of the servers, and how they run."""

    nodes: int = option(1, "Nodes of the job.", panel=HOW, ge=1)
    strict: bool = option(False, "An option unknown to our table is an error.", panel=HOW)
