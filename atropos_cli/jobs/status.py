"""The state of a submitted job: from its launcher, and from its own files (exit.json, endpoints, status).

Whether it waits or runs, its launcher knows: it may start a job again after an attempt has left its exit.json. How an
attempt ended, the folder knows better, and does not forget; what other jobs left in the folder, before this one or
after it, counts for nothing.
A launcher that does not answer has said nothing: a job is lost only when its launcher, asked, does not know it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from atropos_cli.domain.job import JobPlan
from atropos_cli.errors import ExitCode, LaunchError, LauncherSilent, PluginError
from atropos_cli.jobs.asking import ask, checked
from atropos_cli.jobs.folder import is_there, newest_attempt, read_end, read_job, read_record
from atropos_cli.jobs.store import Submitted, successor
from atropos_cli.ports.launcher import JobStatus, Launcher

ENDED = ("finished", "failed", "cancelled", "lost")
_WAITING = ("pending", "running")
_OURS = "atropos: "
"""How lines begin that a job's script prints for us."""
_TAIL = 8192
Span = tuple[int, int | None]
"""Attempts of a job: those after the first number, up to the second."""


def view(job: Submitted, launcher: Launcher) -> dict[str, Any]:
    """The state of a job, for people and programs. silent: its launcher does not answer, and may later."""
    plan = _plan(job)
    found: dict[str, Any] = {"id": job.id, "name": job.name, "folder": str(job.folder)}
    if plan is not None and plan.code is not None:
        found["code"] = plan.code.model_dump(mode="json")
    told = _told(job, launcher)
    silent = {} if told.answered or not told.detail.get("silent") else {"silent": True}
    told = told.replace(detail={key: value for key, value in told.detail.items() if key != "silent"})
    if not job.noted:
        found |= _state(told.state, None, told.reason)
        return {**found, **told.detail, **silent, "components": []}
    again = plan is not None and plan.resources.requeue
    count = plan.resources.array if plan is not None else None
    later = successor(job)
    if later is not None:
        found["folder_taken_by"] = later.id
    if count is None:
        one = _one(job.folder, told, _span(job, later), again=again)
        return found | _with_words(one, job, launcher) | silent
    known = _tasks(job, launcher, count) if told.answered else {}
    missing = told if told.state not in _WAITING else told.replace(state="unknown", reason=None, detail={})
    shards = [
        _one(job.folder / "shards" / str(index), known.get(index, missing), _span(job, later, index), again=again)
        for index in range(count)
    ]
    found |= _together(shards) | silent
    found["shards"] = [{"shard": index, **shard} for index, shard in enumerate(shards)]
    found["merged"] = is_there(job.folder / "summary.json")
    return found


def _span(job: Submitted, later: Submitted | None, shard: int | None = None) -> Span:
    """The attempts that are this job's: those of a later one in its folder are not."""
    return job.attempts_before(shard), None if later is None else later.attempts_before(shard)


def _plan(job: Submitted) -> JobPlan | None:
    if job.noted:
        with contextlib.suppress(Exception):
            return read_job(job.folder / "job.json")
    return None


def _told(job: Submitted, launcher: Launcher) -> JobStatus:
    """What the launcher says, or that it said nothing, and why."""
    try:
        return ask(job, launcher)
    except LauncherSilent as error:
        reason, detail = f"{launcher.name} does not answer: {error.message}", {"silent": "yes"}
    except (LaunchError, PluginError) as error:  # it is not on this machine, perhaps, or makes a mistake
        reason, detail = error.message, {}
    return JobStatus(id=job.id, state="unknown", reason=reason, answered=False, detail=detail)


def _tasks(job: Submitted, launcher: Launcher, count: int) -> dict[int, JobStatus]:
    try:
        found = launcher.tasks(job.id, count)
    except (LaunchError, PluginError) as error:
        silence = JobStatus(id=job.id, state="unknown", reason=error.message, answered=False)
        return dict.fromkeys(range(count), silence)
    return {index: checked(job, status, launcher.name) for index, status in found.items()}


def _state(state: str, code: int | None, reason: str | None) -> dict[str, Any]:
    return {"state": state, "exit_code": code, "reason": reason}


def _one(folder: Path, told: JobStatus, span: Span, *, again: bool) -> dict[str, Any]:
    """One job, or one shard. span: its attempts. again: may its launcher start it again by itself?"""
    before, until = span
    ended = read_end(folder, after=before, until=until)
    if ended is not None and int(ended.get("restarts") or 0) < told.restarts:
        ended = None  # of an attempt after which the launcher has started the job again
    newest = newest_attempt(folder, until=until)
    found = _judged(told, ended, began=newest > before, again=again)
    found["attempt"] = newest
    if told.state == "pending" and told.hopeless:
        found["hopeless"] = True
    found |= told.detail
    kept = until is None or newest_attempt(folder) <= until
    began = newest > before and found["state"] != "pending"  # what an attempt before left says nothing of the next
    left = "killed" if found["state"] in ENDED else "running"
    found["components"] = _components(folder, began=began, left=left) if kept else []
    return found


def _judged(told: JobStatus, ended: dict[str, Any] | None, *, began: bool, again: bool) -> dict[str, Any]:
    """The state, the exit code and the reason, from what the launcher says and how the attempt ended."""
    if told.state in _WAITING:
        if ended is not None and told.state == "running" and not told.reason:
            return _state("running", None, f"ended with {ended.get('code')}; its launcher is cleaning up")
        return _state(told.state, None, told.reason)
    if ended is not None and not ended.get("requeued"):
        if not told.answered and again and _stopped(ended):
            return _state("unknown", None, told.reason)  # it may be in the queue again
        code = ended.get("code")
        state = "finished" if code == 0 else "cancelled" if told.state == "cancelled" else "failed"
        return _state(state, code, _why(told, ended))
    if told.state == "finished" and not began:
        return _state("failed", None, "its script ended with 0 before the command was started")
    if told.state != "unknown":
        return _state(told.state, told.exit_code if told.state == "failed" else None, told.reason)
    if not told.answered:
        return _state("unknown", None, told.reason)
    if ended is not None:
        return _state("lost", None, told.reason or "was to be queued again, and its launcher does not know it any more")
    how = "it left no exit.json: killed" if began else "it never began"
    return _state("lost", None, told.reason or f"its launcher does not know it any more, and {how}")


def _with_words(found: dict[str, Any], job: Submitted, launcher: Launcher) -> dict[str, Any]:
    """What the job's script said when it failed before anything was started, such as the line of a set-up."""
    if found["state"] != "failed" or any(item["state"] != "not started" for item in found["components"]):
        return found
    path = launcher.output(job.spec, job.id)
    try:
        text = "" if path is None else path.read_bytes()[-_TAIL:].decode("utf-8", "replace")
    except OSError:
        return found
    said = [line.removeprefix(_OURS) for line in text.splitlines() if line.startswith(_OURS)]
    return {**found, "reason": f"{said[-1]} ({found['reason']})"} if said else found


def _stopped(ended: dict[str, Any]) -> bool:
    """Was it stopped from outside, and not ended by itself?"""
    code = ended.get("code")
    return isinstance(code, int) and (code == ExitCode.INTERRUPTED or code > 128)


def _why(told: JobStatus, ended: dict[str, Any]) -> str | None:
    """The launcher knows why something was stopped from outside."""
    own = ended.get("reason")
    if ended.get("code") == 0 and told.state in ("failed", "cancelled"):
        return f"ended with 0, and its launcher has it as {told.state}: {told.reason or 'no reason given'}"
    if told.state in ("failed", "cancelled") and told.reason and _stopped(ended):
        if own and not own.startswith("stopped by "):  # the supervisor has asked why, and the launcher guesses
            return f"{own} ({told.reason})"
        return f"{told.reason} ({own})" if own else told.reason
    return own


def _components(folder: Path, *, began: bool, left: str) -> list[dict[str, Any]]:
    """The components of the plan, in its order.

    began: what lies there is of this job, and not of an earlier one. left: what one is that has started and left no
    exit code.
    """
    try:
        names = [item.name for item in read_job(folder / "job.json").components]
    except Exception:  # noqa: BLE001 - a folder without a plan that can be read has no components to show
        return []
    found = []
    for name in names:
        endpoint = read_record(folder / "endpoints" / f"{name}.json") if began else None
        status = read_record(folder / "status" / f"{name}.json") if began else None
        state = "ended" if status else left if endpoint else "not started"
        found.append(
            {
                "name": name,
                "state": state,
                "code": status.get("code") if status else None,
                "node": endpoint.get("node") if endpoint else None,
                "host": endpoint.get("host") if endpoint else None,
                "ports": ports if endpoint and isinstance(ports := endpoint.get("ports"), dict) else {},
            }
        )
    return found


def _together(shards: list[dict[str, Any]]) -> dict[str, Any]:
    """The state of an array: running while one runs, failed when one failed."""
    states = [shard["state"] for shard in shards]
    for state in ("running", "pending", "failed", "cancelled", "lost", "unknown"):
        if state in states:
            first = shards[states.index(state)]
            return _state(state, None if state in _WAITING else first["exit_code"], first["reason"])
    return _state("finished", 0, None)
