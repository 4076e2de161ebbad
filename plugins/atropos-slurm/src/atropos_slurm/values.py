"""Values for sbatch: times, arrays, quoting."""

from __future__ import annotations

import re

from atropos_cli.sdk import UsageError


def time_text(seconds: int) -> str:
    """D-HH:MM:SS."""
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    return f"{days}-{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def array_text(count: int, limit: int | None, most: int | None) -> str:
    """0-7 or 0-7%2. Raises UsageError for more tasks than the cluster allows in one array (`most`)."""
    if most is not None and count > most:
        raise UsageError(
            f"an array of {count} tasks is too large for this cluster: MaxArraySize allows {most}",
            hint=f"--array {most} and more work in each: each shard takes its part of all tasks",
        )
    return f"0-{count - 1}" + (f"%{limit}" if limit else "")


def quoted(value: str, what: str) -> str:
    """A value for a #SBATCH line. Raises UsageError for what sbatch cannot be told there."""
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise UsageError(f"{what}: {value!r} holds a control character")
    if re.fullmatch(r"[A-Za-z0-9_./:=%@,+-]*", value) and value:
        return value
    for mark in ("'", '"'):
        if mark not in value and (mark == "'" or "\\" not in value):
            return f"{mark}{value}{mark}"
    raise UsageError(f"{what}: {value!r} holds quotes of both kinds or a backslash", hint="use another name")


def path_pattern(path: str, what: str) -> str:
    """A path for --output: SLURM's own patterns (%j) are ours to add, a % of the path itself is doubled."""
    if "\\" in path:
        raise UsageError(f"{what}: {path!r} holds a backslash, which ends SLURM's patterns", hint="use another folder")
    return path.replace("%", "%%")
