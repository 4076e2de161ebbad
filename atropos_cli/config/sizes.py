"""What people write for times, memory and names of jobs, and the numbers that they mean."""

from __future__ import annotations

import re

from atropos_cli.errors import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_SLURM_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_MEMORY_MB = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024 * 1024}


def parse_time(text: str) -> int:
    """Seconds of 2h, 90m, 1d12h, 1.5h, and of SLURM's own forms: 90 (minutes), 1:30:00, 2-0, 2-12:30.

    Raises UsageError. A bare M:S is refused: SLURM means minutes and seconds, and most people hours and minutes.
    """
    words = text.strip().lower()
    parts = _PART.findall(words.replace(" ", ""))
    if parts and "".join(number + unit for number, unit in parts) == words.replace(" ", ""):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        return _checked(round(seconds), text)
    match = _SLURM_TIME.fullmatch(words)
    if match is None:
        raise UsageError(f"time {text!r} is not a time", hint="give 2h, 90m, 1d12h or D-HH:MM:SS")
    days, first, second, third = match.groups()
    if days is not None:
        hours, minutes, rest = int(first), int(second or 0), int(third or 0)
        return _checked(((int(days) * 24 + hours) * 60 + minutes) * 60 + rest, text)
    if third is not None:
        return _checked((int(first) * 60 + int(second)) * 60 + int(third), text)
    if second is not None:
        raise UsageError(
            f"time {text!r} may be hours and minutes or minutes and seconds (SLURM's reading)",
            hint=f"give {first}h{second}m, {first}m{second}s or {first}:{second}:00",
        )
    return _checked(int(first) * 60, text)


def _checked(seconds: int, text: str) -> int:
    if seconds < 60:
        raise UsageError(f"time {text!r} is less than a minute", hint="SLURM counts in minutes")
    return seconds


def parse_limit(text: str, option: str) -> int:
    """Bytes of a limit, such as 500M. Raises UsageError."""
    size = parse_memory(text) << 20
    if not size:
        raise UsageError(f"{option} {text}: a limit must be more than nothing", hint=f"{option} 5G")
    return size


def parse_memory(text: str) -> int:
    """MiB of 64G, 1.5G, 512M, 16GiB, 2T, or a number of MiB; 0 and "all" are the whole node. Raises UsageError."""
    words = text.strip()
    if words.lower() == "all":
        return 0
    match = _MEMORY.fullmatch(words)
    if match is None:
        raise UsageError(f"memory {text!r} is not a size", hint="give 64G, 1.5G, 512M, 16GiB, or 0 for the whole node")
    megabytes = float(match[1]) * _MEMORY_MB[match[2].lower()]
    if megabytes and megabytes < 1:
        raise UsageError(f"memory {text!r} is less than a megabyte")
    return round(megabytes)


def job_name(text: str) -> str:
    """A job name that is safe in any path or list: letters, digits, dot, dash, underscore."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-")[:60] or "atropos"
