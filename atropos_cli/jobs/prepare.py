"""From an order to a job: its folder, its JobPlan, the spec that a launcher gets, and the plan of its run.

The plan of a run is written when the job is submitted, and the node carries it out (`atropos run FOLDER`): what is
changed in configuration files while the job waits does not change the job. A command without a plan keeps its words
and gets the configuration files as they were, merged into config.json of its folder.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import atropos_cli
from atropos_cli.config.sizes import job_name
from atropos_cli.console.ending import without_option
from atropos_cli.console.names import default_run_folder
from atropos_cli.domain.job import Component, JobPlan, Resources
from atropos_cli.domain.placeholders import escape
from atropos_cli.domain.plan import Plan
from atropos_cli.errors import DataError, LaunchError, UsageError
from atropos_cli.io.append import write_orders
from atropos_cli.io.remote import make_folder
from atropos_cli.io.rundir import check_same_identity, check_same_plan, holds_training, read_plan
from atropos_cli.jobs.order import Order, PlannedRun
from atropos_cli.jobs.spreading import store_plan, write_shards
from atropos_cli.paths import home
from atropos_cli.ports.launcher import JobSpec, Launcher

RUNS = ("gen", "train")
"""Commands whose run folder is the job's folder too, and that are resumed there when the job is queued again."""
CONFIG_FILE = "config.json"
CONFIG_VARIABLE = "ATROPOS_CONFIG"
_SIGNAL_MARGIN = 15
_LEAST_DRAIN = 5
_PYTHON = (sys.executable, "-P", "-m")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job that is ready to be submitted. run: the plan to be stored in its folder. notes: for the user."""

    plan: JobPlan
    spec: JobSpec
    folder: Path
    run: PlannedRun | None = None
    frozen: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


def prepare(order: Order, launcher: Launcher) -> Prepared:
    """Make the job. Raises UsageError for what the launcher cannot do; writes nothing."""
    _check_able(order, launcher)
    name = order.name or _default_name(order.words)
    order, folder = _placed(order, name)
    resources = order.resources
    if resources.requeue and resources.signal_before_s is None:
        resources = resources.replace(signal_before_s=120)
    grace = 20.0 if resources.signal_before_s is None else min(20.0, resources.signal_before_s / 4)
    drain = max(_LEAST_DRAIN, (resources.signal_before_s or 60) - grace - _SIGNAL_MARGIN)
    run = _with_drain(order.run, max(1.0, drain - _LEAST_DRAIN))
    frozen = order.frozen if run is None else None
    components = [*order.servers, *_commands(order, run, resources, max(1.0, drain - _LEAST_DRAIN))]
    notes: tuple[str, ...] = ()
    if order.words[0] == "train" and not order.servers:
        if resources.nodes > 1:
            components = _on_all_nodes(components[0], resources.nodes)
        if resources.gpus_per_node > 1 and (run is None or (run.processes == 1 and not run.own_processes)):
            gpus = resources.gpus_per_node
            notes = (f"{gpus} GPUs a node, and the training is one process there: --processes {gpus} uses them",)
    plan = JobPlan(
        atropos_version=atropos_cli.__version__,
        name=job_name(name),
        components=tuple(components),
        resources=resources,
        env={**({} if frozen is None else {CONFIG_VARIABLE: str(folder / CONFIG_FILE)}), **order.env},
        cwd=str(order.cwd),
        start_timeout=order.start_timeout,
        grace=grace,
        drain=drain,
        max_requeues=order.max_requeues if resources.requeue else 0,
        setup=order.setup,
        code=order.code,
    )
    plan = launcher.adapt(plan, folder)
    spec = spec_of(plan, folder, after=order.after, options=order.options)
    return Prepared(plan, spec, folder, run, frozen, notes)


def spec_of(
    plan: JobPlan, folder: Path, *, after: tuple[str, ...] = (), options: dict[str, str] | None = None
) -> JobSpec:
    """The job for a launcher: everything else is in the folder."""
    return JobSpec(
        name=plan.name,
        run=str(folder),
        cwd=plan.cwd,
        resources=plan.resources.model_dump(mode="json"),
        after=after,
        options=options or {},
    )


def store(prepared: Prepared) -> None:
    """Write what the node reads. Raises PlanChanged where the folder holds another run, ConfigError for a secret."""
    if prepared.frozen is not None:
        make_folder(prepared.folder)
        write_orders(prepared.folder / CONFIG_FILE, json.dumps(prepared.frozen, indent=2).encode() + b"\n")
    if prepared.run is None:
        return
    plan, count = prepared.run.plan, prepared.plan.resources.array
    if count is not None and isinstance(plan, Plan):
        write_shards(plan, prepared.folder, count, resume=True)
        return
    stored = prepared.folder / "plan.json"
    if isinstance(plan, Plan) and any(prepared.folder.glob("groups.jsonl*")) and stored.exists():
        old = read_plan(stored)
        plan = plan.replace(model=plan.model or old.model)
        check_same_plan(old, plan, prepared.folder)
    elif not isinstance(plan, Plan) and holds_training(prepared.folder):
        from atropos_cli.io.rundir import read_stored

        check_same_identity(read_stored(stored, type(plan), what="a training plan", hint=""), plan, prepared.folder)
    store_plan(plan, prepared.folder)


def _check_able(order: Order, launcher: Launcher) -> None:
    able, wanted = launcher.capabilities, order.resources
    if not able.submit:
        raise UsageError(
            f"launcher {launcher.name!r} cannot start a job that goes on by itself",
            hint=f"atropos gen ENV --on {launcher.name} carries a run out in shards" if able.shards else None,
        )
    if wanted.array is not None and order.words[0] != "gen":
        raise UsageError("--array shards the tasks of gen", hint="drop --array, or submit a gen")
    for asked, can, option in (
        (wanted.nodes > 1, able.nodes, "--nodes"),
        (wanted.array is not None, able.arrays, "--array"),
        (bool(order.after), able.dependencies, "--after"),
        (bool(order.servers), able.services, "--serve"),
    ):
        if asked and not can:
            raise UsageError(f"launcher {launcher.name!r} knows nothing like {option}", hint=f"drop {option}")


def _default_name(words: tuple[str, ...]) -> str:
    second = words[1] if len(words) > 1 and re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", words[1]) else ""
    return f"{words[0]}-{second}" if second else words[0]


def _placed(order: Order, name: str) -> tuple[Order, Path]:
    """The order without its command's output, and the job's folder, which is that of its run too."""
    given: Path | None = None
    if order.run is not None:
        if order.run.overwrite:
            raise _no_overwrite()
        given = order.run.output
    elif order.words[0] in RUNS:
        order, given = _without_output(order)
    if given == Path("-"):
        raise UsageError("a job has no standard output to write to", hint="give --output RUN")
    home_folder = order.home or order.cwd
    folder = home_folder / (order.folder or given or default_run_folder(name))
    if given is not None and os.path.normpath(home_folder / given) != os.path.normpath(folder):
        raise UsageError(
            f"--folder {order.folder} and the command's --output {given} both name the run's folder", hint="drop one"
        )
    return order, folder.absolute()


def _without_output(order: Order) -> tuple[Order, Path | None]:
    """For a run whose plan is made on the node: it writes into the job's folder, and is resumed there."""
    if "--overwrite" in order.words:
        raise _no_overwrite()
    kept, values = without_option(order.words, "--output", "-o")
    words = tuple(word for word in kept if word != "--resume")
    return replace(order, words=words), Path(home(values[0])) if values else None


def _no_overwrite() -> UsageError:
    return UsageError(
        "--overwrite cannot be used in a job: it must go on where it was stopped", hint="give another --output"
    )


def _with_drain(run: PlannedRun | None, seconds: float) -> PlannedRun | None:
    """The run with a drain that ends before the job is killed, unless the user gave one."""
    if run is None or not run.complete:
        return None
    if isinstance(run.plan, Plan) and not run.own_drain:
        execution = run.plan.execution.replace(drain=seconds)
        return replace(run, plan=run.plan.replace(execution=execution))
    return run


def _commands(order: Order, run: PlannedRun | None, resources: Resources, drain: float) -> list[Component]:
    """The command as main, and the merge behind a shard."""
    if run is not None:
        argv = [*_PYTHON, "atropos_cli", "run", "{run}"]
        argv += ["--processes", str(run.processes)] if run.processes > 1 else []
    else:
        argv = [*_PYTHON, "atropos_cli", *(escape(word) for word in order.words)]
    argv += order.addresses
    if run is None and order.words[0] in RUNS:
        argv += ["--output", "{run}", "--resume"]
        if order.words[0] == "gen":
            argv += ["--drain", f"{drain:g}"] if "--drain" not in order.words else []
            argv += ["--shard", "{shard}"] if resources.array is not None else []
    main = Component(name="main", role="main", argv=tuple(argv))
    if resources.array is None:
        return [main]
    merge = (*_PYTHON, "atropos_cli.jobs.shards", "{run}")
    return [main, Component(name="merge", role="task", argv=merge, after=("main",))]


def _on_all_nodes(main: Component, nodes: int) -> list[Component]:
    """Main, and a helper on each further node; the processes of a training find each other by these variables."""
    meet = {"MASTER_ADDR": "{host}", "MASTER_PORT": "{port}"}
    there = {"MASTER_ADDR": "{endpoint:main.host}", "MASTER_PORT": "{endpoint:main.port}"}
    parts = [main.replace(ports=("rendezvous",), env={"NNODES": str(nodes), "NODE_RANK": "0", **meet})]
    for node in range(1, nodes):
        env = {"NNODES": str(nodes), "NODE_RANK": str(node), **there}
        parts.append(main.replace(name=f"main{node}", role="helper", node=node, env=env))
    return parts


def world_variables(order_nodes: int) -> dict[str, str]:
    """What a training sees on the first of several nodes: how many processes there will be decides its batch."""
    if order_nodes == 1:
        return {}
    return {"NNODES": str(order_nodes), "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def submit(prepared: Prepared, launcher: Launcher) -> str:
    """Write the job's folder and start it; its id. Raises LaunchError while the folder's job is in the queue."""
    from atropos_cli.jobs.folder import write_job
    from atropos_cli.jobs.store import attempts_in, remember

    folder = prepared.folder
    check_free(folder, launcher)
    fresh = not (folder / "plan.json").exists()
    launcher.render(prepared.spec)
    launcher.call(prepared.spec)  # what is wrong with it is said before the job is started, not after
    store(prepared)
    write_job(prepared.plan, folder)
    earlier = attempts_in(folder, prepared.plan.resources.array)
    try:
        job_id = launcher.submit(prepared.spec)
    except LaunchError:
        if fresh:  # nothing began: another command may take the folder
            (folder / "plan.json").unlink(missing_ok=True)
        raise
    try:
        remember(folder, job_id, prepared.spec, launcher, earlier)
    except DataError as error:
        raise LaunchError(
            f"job {job_id} was submitted to {launcher.name}, and cannot be noted: {error.message}",
            hint=f"it keeps running; to stop it, use the commands of {launcher.name} itself",
        ) from error
    return job_id


def check_free(folder: Path, launcher: Launcher) -> None:
    """Two jobs never write one folder. Raises LaunchError unless the one before is known to be over."""
    from atropos_cli.jobs.status import view
    from atropos_cli.jobs.store import SUBMITTED, read_submitted

    if not (folder / SUBMITTED).exists():
        return
    before = read_submitted(folder)
    if before.launcher != (launcher.source or launcher.name):
        return
    found = view(before, launcher)
    state, reason = found["state"], found["reason"]
    if state in ("pending", "running"):
        raise LaunchError(
            f"{folder} belongs to job {before.id}, which is {state}",
            hint=f"atropos job cancel {before.id}, or give another --output",
        )
    if state == "unknown":
        raise LaunchError(
            f"{folder} belongs to job {before.id}, which may still be running: {reason or 'nothing is known of it'}",
            hint=f"give another --output, or remove {folder / SUBMITTED} if that job is over",
        )
