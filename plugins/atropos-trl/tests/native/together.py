"""Runs of several processes, started by a server that has imported torch once. One list of jobs for all of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import traceback
from pathlib import Path
from typing import Any


def together(size: int, jobs: list[dict[str, Any]], place: Path) -> list[list[Any]]:
    """What each process reported of each job: [process][job] -> {"reports", "warnings", "stopped", "error"}."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["together_preload"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place.mkdir(parents=True, exist_ok=True)
    processes = [context.Process(target=_one, args=(rank, size, port, jobs, place)) for rank in range(size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(1200)
        if process.is_alive():
            process.kill()
    found = []
    for rank in range(size):
        told = json.loads((place / f"{rank}.json").read_text())
        assert isinstance(told, list), told
        found.append(told)
    return found


def _one(rank: int, size: int, port: int, jobs: list[dict[str, Any]], place: Path) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    told: Any = []
    try:
        for number, job in enumerate(jobs):
            os.environ["MASTER_PORT"] = str(port + number)
            told.append(one(job))
    except BaseException:
        told = traceback.format_exc()
    finally:
        (place / f"{rank}.json").write_text(json.dumps(told))


def one(job: dict[str, Any]) -> dict[str, Any]:
    """Train as the engine does; its own errors are told, not raised."""
    from native_support import Folder, make_groups, make_plan, train

    from atropos_cli.sdk import AtroposError

    folder = Path(job["folder"])
    context = Folder(folder, make_groups(**job["groups"]), resume=job.get("resume", False), stop_at=job.get("stop_at"))
    fails = job.get("fails_at")

    def rule(step: int) -> None:
        if step == fails:
            raise AtroposError("ended by a rule")

    context.on_report = rule
    plan = make_plan(job["model"], config=job["config"], **job.get("plan", {}))
    stopped = error = None
    try:
        stopped = train(plan, context).stopped
    except AtroposError as problem:
        error = problem.message
    return {"reports": context.reports, "warnings": context.warnings, "stopped": stopped, "error": error}
