"""Why a job waits or has failed, in words, and what to do about it."""

from __future__ import annotations

_PENDING = {
    "Resources": "waits for free nodes",
    "Priority": "waits behind jobs of higher priority",
    "None": "not looked at by the scheduler yet",
    "BeginTime": "waits for its begin time; a job that was queued again waits about two minutes",
    "Dependency": "waits for the jobs it depends on",
    "JobHeldUser": "held by its owner; go on with: scontrol release JOB",
    "JobHeldAdmin": "held by an administrator",
    "JobArrayTaskLimit": "waits for other tasks of its array (its own limit)",
    "ReqNodeNotAvail": "a node it needs is down, drained or reserved (maintenance, often); try a shorter --time",
    "MaxRequeue": "queued again too often; held",
    "launch failed requeued held": "a node could not launch it, and it is held; see the node with "
    "scontrol show node, then continue with: scontrol release JOB",
}
_NEVER = {
    "DependencyNeverSatisfied": "a job it depends on has failed: it will never start; cancel it",
    "PartitionConfig": "asks for more than any node of the partition has: it will never start; cancel it, ask for less",
    "PartitionNodeLimit": "asks for more nodes than the partition allows: it will never start; cancel it, ask for less",
    "PartitionTimeLimit": "asks for more time than the partition allows: it will never start; give a shorter --time",
    "PartitionDown": "the partition is down; it waits until that ends",
    "PartitionInactive": "the partition is inactive; it waits until that ends",
    "BadConstraints": "no node can satisfy what it asks for: it will never start; cancel it, ask for less",
    "AccountNotAllowed": "the account may not use this partition: it will never start",
    "QOSNotAllowed": "the QOS may not be used here: it will never start",
    "InvalidAccount": "the account is not valid: it will never start; give another account in the profile",
    "InvalidQOS": "the QOS is not valid: it will never start",
}
_FAILED = {
    "JobLaunchFailure": "SLURM could not start the script: the folder of its log is missing on the node, "
    "or not writable there; the script never ran",
    "TimeLimit": "ran into its time limit; give --time more, or --requeue with --signal-before",
    "OutOfMemory": "used more memory than it asked for; give --mem more",
    "NodeDown": "its node went down",
    "RaisedSignal": "was ended by a signal",
    "BadConstraints": "no node could satisfy what it asked for",
}
_STATES = {
    "PREEMPTED": "preempted: it made room for a job of higher priority; with --requeue it is queued again",
    "NODE_FAIL": "its node went down; with --requeue it is queued again",
    "BOOT_FAIL": "its node did not boot",
    "DEADLINE": "its deadline came",
}
_CODES = {
    70: "a server ended or could not be used",
    75: "the servers were not ready in time",
    127: "a program was not found",
    137: "was killed (out of memory, often)",
    138: "stopped before its time limit; queued again if it may",
    143: "was stopped by SIGTERM (scancel, or preemption)",
}
_STOPPED = (130, 143)
"""Codes of programs that were asked to stop, which say nothing more of a cancelled job."""


def never(reason: str) -> bool:
    """Will a job that waits for this reason wait for ever?"""
    return reason in _NEVER and not reason.startswith("PartitionDown") and reason != "PartitionInactive"


def explain_pending(reason: str) -> str:
    """A pending job's reason in words."""
    if reason == "None":
        return _PENDING[reason]
    known = _PENDING.get(reason) or _NEVER.get(reason)
    if known is None and reason.startswith(("QOSMax", "QOSGrp", "AssocMax", "AssocGrp", "QOSMin")):
        known = "a limit of your account or QOS is reached"
    if known is None and reason.startswith("ReqNodeNotAvail"):
        known = _PENDING["ReqNodeNotAvail"]
    return f"{reason}: {known}" if known else reason


def explain_end(reason: str, code: int, signal: int, state: str = "") -> str | None:
    """Why a job ended, from SLURM's state, reason and ExitCode (code:signal); None when there is nothing to add."""
    if state in _STATES:
        return _STATES[state]
    if (code, signal) == (0, 53):
        return f"0:53: {_FAILED['JobLaunchFailure']}"
    known = _FAILED.get(reason)
    if known:
        return f"{reason}: {known}"
    if signal:
        return f"ended by signal {signal}"
    if state == "CANCELLED" and code in _STOPPED:
        return None
    return _CODES.get(code)
