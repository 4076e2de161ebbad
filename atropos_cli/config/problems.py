"""Problems found in configuration, collected so that all of them are reported at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from atropos_cli.errors import AtroposError, ConfigError, UsageError

OriginKind = Literal["default", "found", "user file", "file", "environment variable", "flag"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from. `name` is the flag, the variable or the file as the user may type it."""

    kind: OriginKind
    name: str = ""
    line: int | None = None

    def __str__(self) -> str:
        if self.kind == "default":
            return "default"
        return f"{self.name}:{self.line}" if self.line is not None else self.name


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, its place, and what may help."""

    origin: Origin
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        if self.origin.kind == "default":
            return self.message
        return f"{self.origin}: {self.message}"


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raise one error that lists every problem: UsageError when all are flags, else ConfigError. None: return."""
    if not problems:
        return
    unique = _in_order(problems)
    kind: type[AtroposError] = UsageError if all(p.origin.kind == "flag" for p in unique) else ConfigError
    if len(unique) == 1:
        raise kind(str(unique[0]), hint=unique[0].hint)
    lines = [f"  {problem}" + (f" ({problem.hint})" if problem.hint else "") for problem in unique]
    raise kind("\n".join([f"{len(unique)} problems in the configuration", *lines]))


def _in_order(problems: Sequence[Problem]) -> list[Problem]:
    """Without repeats; sources in the order they were read, the lines of a file from top to bottom."""
    unique = list(dict.fromkeys(problems))
    sources: dict[tuple[str, str], int] = {}
    for problem in unique:
        sources.setdefault(_source(problem), len(sources))
    return sorted(unique, key=lambda problem: (sources[_source(problem)], problem.origin.line or 0))


def _source(problem: Problem) -> tuple[str, str]:
    in_file = problem.origin.kind in ("file", "user file")
    return problem.origin.kind, problem.origin.name if in_file else ""


def suggest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like the name, or None. Dashes and case are not differences."""
    known = {candidate.lower().replace("-", "_"): candidate for candidate in candidates}
    matches = get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.6)
    return known[matches[0]] if matches else None


def short_path(path: Path) -> str:
    """The path relative to the working directory when it lies below it, else as it is."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
