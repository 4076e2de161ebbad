"""Where the servers of a job answer, and which are ready: from the job's folder, which all nodes see."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from atropos_cli.domain.job import Component, JobPlan
from atropos_cli.errors import AtroposError
from atropos_cli.jobs.folder import newest_attempt, read_end, read_job, read_record
from atropos_cli.jobs.store import read_submitted
from atropos_cli.ports.serving import TINKER
from atropos_cli.serving.record import ServerRecord


def ready_names(folder: Path, *, skip: int = 0, after: int = 0) -> set[str]:
    """Components of the newest attempt that were found ready.

    skip: bytes of events.jsonl that are older. after: the last attempt of earlier jobs, which do not count.
    """
    names: set[str] = set()
    with contextlib.suppress(OSError), (folder / "events.jsonl").open("rb") as file:
        file.seek(skip)
        for line in file:
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if event.get("event") == "job_started":
                    names.clear()
                elif int(event.get("attempt") or 0) <= after:
                    continue
                elif event.get("event") == "ready":
                    names.add(str(event.get("component")))
    return names


def all_ready(plan: JobPlan, folder: Path, *, skip: int = 0, after: int = 0) -> bool:
    """Is every server ready?"""
    return {item.name for item in plan.services} <= ready_names(folder, skip=skip, after=after)


def fronts(components: Iterable[Component]) -> tuple[Component, ...]:
    """The services that clients ask: those with a health path, without the ones behind a router."""
    asked = [item for item in components if item.role == "service" and item.health is not None]
    behind = {name for item in asked for name in item.awaits()}
    return tuple(item for item in asked if item.name not in behind)


def addresses(plan: JobPlan, folder: Path) -> list[tuple[str, int]]:
    """(host, port) of every server that answers requests."""
    found = []
    for item in fronts(plan.components):
        endpoint = read_record(folder / "endpoints" / f"{item.name}.json")
        if endpoint is not None:
            found.append((str(endpoint["host"]), int(next(iter(endpoint["ports"].values())))))
    return found


def base_url(host: str, port: int, engine: str) -> str:
    """The base URL of a server for clients: that of the OpenAI API, or of the Tinker API."""
    root = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return root if engine == TINKER else f"{root}/v1"


def batch_state(folder: Path, record: ServerRecord) -> ServerRecord:
    """The state of a server in a batch job, from what its job (not one before it) left in the folder.

    SLURM itself is not asked: it may have queued the job again, or lost it.
    """
    try:
        before = read_submitted(folder).attempts_before()
    except AtroposError:
        return record
    end = read_end(folder, after=before)
    if end is not None and not end.get("requeued"):
        stopped = int(end.get("code", 1)) in (0, 128 + 2, 128 + 15)
        return record.replace(state="stopped" if stopped else "failed", code=end.get("code"), reason=end.get("reason"))
    try:
        plan = read_job(folder / "job.json")
    except AtroposError:
        return record
    if end is not None or newest_attempt(folder) <= before or not all_ready(plan, folder, after=before):
        return record
    urls = tuple(base_url(host, port, record.engine) for host, port in addresses(plan, folder))
    return record.replace(state="ready", urls=urls)
