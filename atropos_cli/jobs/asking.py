"""Asking a launcher for one of our jobs: is there an answer, and is it about our job?

Everything that acts on a job or reports its state asks here, since an id alone does not name a job: clusters begin
again at 1, and one home may see several of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from atropos_cli.errors import LaunchError, LauncherSilent
from atropos_cli.jobs.store import Submitted
from atropos_cli.ports.launcher import JobStatus, Launcher

CLUSTER = "cluster"
"""The key of JobStatus.identity for the place that was asked: another one knows nothing of our job."""
_SHOWN = {"submitted": "submission time"}


def ask(job: Submitted, launcher: Launcher) -> JobStatus:
    """What the launcher says of the job. Raises LauncherSilent, or LaunchError where it cannot be asked here."""
    return checked(job, launcher.status(job.id), launcher.name)


def checked(job: Submitted, status: JobStatus, name: str) -> JobStatus:
    """The status if it is that of our job. Of another one of the same id it says only that ours is not known."""
    there, here = job.identity.get(CLUSTER), status.identity.get(CLUSTER)
    if there and here and there != here:
        reason = f"it was submitted to cluster {there!r}, and {name} here is cluster {here!r}"
        return JobStatus(id=job.id, state="unknown", reason=reason, answered=False)
    for key, ours in job.identity.items():
        theirs = status.identity.get(key)
        if theirs and ours and theirs != ours:
            what = _SHOWN.get(key, key)
            reason = f"job {job.id} of {name} is another job now: {what} {theirs}, ours has {ours}"
            return JobStatus(id=job.id, state="unknown", reason=reason)
    return status


def the_one_here(jobs: Sequence[Submitted], launcher: Launcher) -> Submitted:
    """Of jobs with one id, the newest first: the one that the launcher has; else one that is of its cluster."""
    told: list[tuple[Submitted, JobStatus]] = []
    for job in jobs if len(jobs) > 1 else ():
        with contextlib.suppress(LaunchError):
            told.append((job, ask(job, launcher)))
    has = [job for job, status in told if status.state != "unknown"]
    could = [job for job, status in told if status.answered]
    return next(iter((*has, *could, *jobs)))


def cancel(job: Submitted, launcher: Launcher) -> str:
    """Cancel the job; its state then. Raises LaunchError when it cannot be asked for, or its id is another job's."""
    status = ask(job, launcher)
    ours = job.noted or job.identity
    if status.state == "unknown" and (status.reason or not status.answered) and ours:
        raise LaunchError(
            f"job {job.id} was not cancelled: {status.reason or f'{launcher.name} does not know it'}",
            hint=None if status.answered else "cancel it where it was submitted",
        )
    launcher.cancel(job.id)
    try:
        return launcher.status(job.id).state
    except LauncherSilent as error:
        raise LauncherSilent(f"job {job.id} was asked to stop, and there is no answer yet: {error.message}") from error
