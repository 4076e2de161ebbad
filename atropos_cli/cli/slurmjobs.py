"""From an atropos command to a SLURM job: its plan, its folder, the job that the launcher gets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import atropos_cli
from atropos_cli.cli.habits import glance
from atropos_cli.cli.inner import check_known, variable
from atropos_cli.config.pairs import put_once
from atropos_cli.console.ending import without_option
from atropos_cli.console.names import default_run_folder
from atropos_cli.errors import ConfigError, LaunchError, UsageError
from atropos_cli.paths import home
from atropos_cli.redaction import looks_secret

if TYPE_CHECKING:
    from atropos_cli.builtin.slurm.config import Container, SlurmConfig
    from atropos_cli.domain.job import Component, JobPlan, Resources
    from atropos_cli.ports.launcher import JobSpec

_SIGNAL_MARGIN = 15
_REFUSED = frozenset({"slurm", "tmux", "launch-sglang", "launch-vllm", "view"})
_RUNS = ("gen", "train")
"""Commands whose run folder is the job's folder too, and that go on in it when the job is queued again."""
_LEAST_DRAIN = 5
_SECRET = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
_DUMMY_URL = "http://127.0.0.1:9/v1"


@dataclass(frozen=True, slots=True)
class Serve:
    """Servers to start beside the command. extra: options for the engine, verbatim."""

    engine: Literal["sglang", "vllm"]
    model: str
    tp: int | None = None
    dp: int | None = None
    python: str | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What `slurm submit` was asked for. folder: the job's; None is --output of a gen, or a new one in runs/."""

    words: tuple[str, ...]
    resources: Resources
    name: str | None = None
    folder: Path | None = None
    after: tuple[str, ...] = ()
    serve: Serve | None = None
    env: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    start_timeout: float = 1800.0
    max_requeues: int = 10
    cwd: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job that is ready to be submitted. notes: for the user."""

    plan: JobPlan
    spec: JobSpec
    folder: Path
    notes: tuple[str, ...] = ()


def prepare(request: Request, profile: SlurmConfig) -> Prepared:
    """Make the plan. Raises UsageError, LaunchError; writes nothing."""
    from atropos_cli.builtin.slurm.values import job_name
    from atropos_cli.domain.job import JobPlan
    from atropos_cli.ports.launcher import JobSpec

    words = _checked(request.words)
    if request.resources.array is not None and words[0] != "gen":
        raise UsageError("--array shards the tasks of gen", hint="drop --array, or submit a gen")
    name = request.name or _default_name(words)
    words, folder = _with_folder(words, request, name) if words[0] in _RUNS else (words, request.folder)
    folder = (folder or default_run_folder(name)).absolute()
    servers, urls, notes = _servers(request, words)
    resources = request.resources
    if resources.requeue and resources.signal_before_s is None:
        resources = resources.replace(signal_before_s=120)
    grace = 20.0 if resources.signal_before_s is None else min(20.0, resources.signal_before_s / 4)
    drain = max(_LEAST_DRAIN, (resources.signal_before_s or 60) - grace - _SIGNAL_MARGIN)
    components = [*servers, *_commands(words, urls, resources, drain)]
    if words[0] == "train" and resources.nodes > 1 and not servers:
        components = _on_all_nodes(components[0], resources.nodes, profile.interface)
    gpus = resources.gpus_per_node
    if words[0] == "train" and gpus > 1 and not (glance(words, "processes") or servers):
        notes = (*notes, f"{gpus} GPUs a node, and the training is one process there: --processes {gpus} uses them")
    if profile.container is not None:
        components = [_contained(item, profile.container, folder, request.cwd) for item in components]
    plan = JobPlan(
        atropos_version=atropos_cli.__version__,
        name=job_name(name),
        components=tuple(components),
        resources=resources,
        env={**profile.env, **request.env},
        cwd=str(request.cwd),
        interface=profile.interface,
        start_timeout=request.start_timeout,
        grace=grace,
        drain=drain,
        max_requeues=request.max_requeues if resources.requeue else 0,
    )
    spec = JobSpec(
        name=plan.name,
        run=str(folder),
        cwd=str(request.cwd),
        resources=resources.model_dump(mode="json"),
        after=request.after,
        options=request.options,
    )
    return Prepared(plan, spec, folder, notes)


def _checked(words: Sequence[str]) -> tuple[str, ...]:
    words = tuple(words[1:] if words and words[0] == "atropos" else words)
    if not words or words[0].startswith("-"):
        raise UsageError("give the command to run", hint="atropos slurm submit --time 2h -- gen textworld --limit 10")
    check_known(words[0])
    if words[0] in _REFUSED:
        raise UsageError(f"atropos {words[0]} is no command for a batch job")
    return words


def _default_name(words: Sequence[str]) -> str:
    second = words[1] if len(words) > 1 and re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", words[1]) else ""
    return f"{words[0]}-{second}" if second else words[0]


def _with_folder(words: tuple[str, ...], request: Request, name: str) -> tuple[tuple[str, ...], Path]:
    """A gen or train without its output options, and the run folder, which is the job's folder too."""
    if "--overwrite" in words:
        raise UsageError(
            "--overwrite cannot be used in a job: it must go on where it was stopped", hint="give another --output"
        )
    kept, values = without_option(words, "--output", "-o")
    if len(values) > 1:
        raise UsageError("--output is given twice, and it takes one value", hint="give it once")
    left = tuple(word for word in kept if word != "--resume")
    given = values[0] if values else None
    if given == "-":
        raise UsageError("a job has no standard output to write to", hint="give --output RUN")
    folder = request.folder or (Path(home(given)) if given is not None else default_run_folder(name))
    folder = request.cwd / folder
    if given is not None and os.path.normpath(request.cwd / home(given)) != os.path.normpath(folder):
        raise UsageError(
            f"--folder {request.folder} and the command's --output {given} both name the run's folder", hint="drop one"
        )
    return left, folder


def _commands(words: tuple[str, ...], urls: tuple[str, ...], resources: Resources, drain: float) -> list[Component]:
    """The command as main, and the merge behind a shard."""
    from atropos_cli.domain.job import Component
    from atropos_cli.domain.placeholders import escape

    python = (sys.executable, "-P", "-m")
    argv = [*python, "atropos_cli", *(escape(word) for word in words)]
    argv += [word for url in urls for word in ("--base-url", url)]
    if words[0] in _RUNS:
        argv += ["--output", "{run}", "--resume"]
    if words[0] == "gen":
        if not glance(words, "drain"):
            argv += ["--drain", f"{max(1.0, drain - _LEAST_DRAIN):g}"]
        if resources.array is not None:
            argv += ["--shard", "{shard}"]
    main = Component(name="main", role="main", argv=tuple(argv))
    if resources.array is None:
        return [main]
    merge = (*python, "atropos_cli.jobs.shards", "{run}")
    return [main, Component(name="merge", role="task", argv=merge, after=("main",))]


def _on_all_nodes(main: Component, nodes: int, interface: str | None) -> list[Component]:
    """Main, and a helper on each further node; `atropos train` finds the others by these variables."""
    meet = {"MASTER_ADDR": "{host}", "MASTER_PORT": "{port}"}
    there = {"MASTER_ADDR": "{endpoint:main.host}", "MASTER_PORT": "{endpoint:main.port}"}
    network = {"NCCL_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface} if interface else {}
    parts = [main.replace(ports=("rendezvous",), env={"NNODES": str(nodes), "NODE_RANK": "0", **meet, **network})]
    for node in range(1, nodes):
        env = {"NNODES": str(nodes), "NODE_RANK": str(node), **there, **network}
        parts.append(main.replace(name=f"main{node}", role="helper", node=node, env=env))
    return parts


def _servers(request: Request, words: tuple[str, ...]) -> tuple[list[Component], tuple[str, ...], tuple[str, ...]]:
    """(components, base URLs with placeholders, notes)."""
    serve = request.serve
    if serve is None:
        return [], (), ()
    if glance(words, "base-url"):
        raise UsageError("--serve starts the servers that --base-url would name", hint="drop one of them")
    from atropos_cli.config.serving import LaunchSettings
    from atropos_cli.serving.platforms import Platform, detect
    from atropos_cli.serving.prepare import engine_program, look_up
    from atropos_cli.serving.servers import ServerRequest, plan_servers

    gpus = request.resources.gpus_per_node
    servers = plan_servers(
        ServerRequest(
            engine=serve.engine,
            model=serve.model,
            settings=LaunchSettings(tp=serve.tp, dp=serve.dp),
            extra=serve.extra,
            nodes=request.resources.nodes,
            gpus_per_node=gpus,
            # The GPUs are those of the compute nodes, which may be of any kind; without GPUs it is a CPU job.
            platform=Platform("gpu") if gpus else Platform("cpu", memory=detect().memory),
            info=look_up(serve.model, offline=False, ask_hub=False),
            program=engine_program(serve.engine, serve.python) if serve.python else None,
        )
    )
    urls = tuple(f"http://{{endpoint:{item.name}}}/v1" for item in servers.heads)
    return list(servers.components), urls, servers.notes


def _contained(item: Component, container: Container, folder: Path, cwd: Path) -> Component:
    """The component inside the profile's container."""
    if item.role != "service" and container.components == "services":
        return item
    mounts = [*(":".join(map(home, mount.split(":"))) for mount in container.mounts), str(folder), str(cwd)]
    image = home(container.image)
    changed: Component
    if container.runtime == "apptainer":
        binds = [word for mount in dict.fromkeys(mounts) for word in ("--bind", mount)]
        nvidia = ["--nv"] if item.gpus != () else []
        argv = ("apptainer", "exec", *nvidia, *binds, *container.options, image, *item.argv)
        changed = item.replace(argv=argv)
        return changed
    package = Path(atropos_cli.__file__).resolve().parent
    pairs = [mount if ":" in mount else f"{mount}:{mount}" for mount in dict.fromkeys([*mounts, str(package)])]
    options = (f"--container-image={image}", f"--container-mounts={','.join(pairs)}", *container.options)
    changed = item.replace(step_options=options, python=container.python)
    return changed


def variables(given: Sequence[str]) -> dict[str, str]:
    """--env NAME=VALUE for the plan. NAME alone must be set here; it reaches the job by inheritance, unwritten."""
    found: dict[str, str] = {}
    for text in given:
        name, value = variable(text)
        if value and (_SECRET.search(name) or looks_secret(value)):
            raise UsageError(
                f"--env {name}=...: this looks like a secret, and would be written into the job's plan",
                hint=f"export {name} in your shell and give --env {name}",
            )
        if value is not None:
            put_once(found, name, value, "--env")
    return found


def options(given: Sequence[str]) -> dict[str, str]:
    """--sbatch KEY=VALUE, or KEY for a switch. Raises UsageError."""
    from atropos_cli.builtin.slurm.config import check_option

    found: dict[str, str] = {}
    for text in given:
        key, _, value = text.lstrip("-").partition("=")
        try:
            check_option(key)
        except ValueError as error:
            raise UsageError(f"--sbatch {text}: {error}") from error
        put_once(found, key, value, "--sbatch")
    return found


def check_command(prepared: Prepared, serve: bool) -> None:
    """Let the command check itself here, before it waits in a queue (gen, eval and train: --dry-run).

    Raises ConfigError with its own words.
    """
    main = prepared.plan.main
    assert main is not None
    argv = [
        _DUMMY_URL if position and main.argv[position - 1] == "--base-url" and serve else word
        for position, word in enumerate(main.argv)
    ]
    words = argv[argv.index("atropos_cli") + 1 :]
    if words[0] not in ("gen", "eval", "train"):
        return
    from atropos_cli.domain.placeholders import fill

    known = {"run": str(prepared.folder), "shard": "0/1"}
    command = [
        sys.executable,
        "-P",
        "-m",
        "atropos_cli",
        *(fill(word, lambda token: known.get(token, "")) for word in words),
    ]
    try:
        done = subprocess.run(  # noqa: S603
            [*command, "--dry-run"],
            cwd=prepared.plan.cwd,
            env={**os.environ, **prepared.plan.env, **_world(main)},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=300,
        )
    except subprocess.TimeoutExpired as error:
        raise LaunchError("the command's own check took over 5 minutes", hint="--no-check leaves it out") from error
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line]
        text = "\n".join(line.removeprefix("error: ") for line in lines[-10:]) or f"exit code {done.returncode}"
        raise ConfigError(f"the command cannot run: {text}", hint="--no-check submits it all the same")


def _world(main: Component) -> dict[str, str]:
    """How many processes there will be: the batch has to come out even."""
    return {**main.env, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"} if "NNODES" in main.env else {}


def stamp() -> str:
    return datetime.now().isoformat(timespec="seconds")
