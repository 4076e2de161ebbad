"""What the page asks for, as functions from arguments to JSON: the same for the server and for an exported page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atropos_cli.cli.view import payload
from atropos_cli.cli.view.about import about, heading
from atropos_cli.cli.view.diff import SORTS, Diff
from atropos_cli.cli.view.runs import Query, Run

PAGE = 100
LOOK = 0.4
"""Seconds that one request may look for groups; the page asks again where the last one stopped."""


class BadRequest(ValueError):
    """An argument that is missing or out of range."""


class Library:
    """One run, or two to compare, and how tokens become text."""

    def __init__(self, runs: Sequence[Run], decode: Callable[[Sequence[int]], str] | None = None) -> None:
        self.runs = runs
        self.decode = decode
        self.diff = Diff(runs[0], runs[1]) if len(runs) > 1 else None

    def answer(self, what: str, given: Mapping[str, str]) -> dict[str, Any] | None:
        """The answer to a request, None for an unknown one. Raises BadRequest."""
        functions: dict[str, Callable[[Mapping[str, str]], dict[str, Any]]] = {
            "run": self.run,
            "groups": self.groups,
            "group": self.group,
            "message": self.message,
            "tokens": self.tokens,
            "diff": self.comparison,
        }
        function = functions.get(what)
        return function(given) if function is not None else None

    def run(self, given: Mapping[str, str]) -> dict[str, Any]:
        """What the runs are called and how many groups they hold."""
        runs = []
        for run in self.runs:
            run.refresh()
            runs.append(
                {
                    "name": run.name,
                    "groups": len(run),
                    "bytes": run.size,
                    "files": run.files[:20],
                    "file_count": len(run.files),
                    "left_out": run.left_out,
                    "note": run.note,
                    "grows": run.grows,
                    "about": about(run),
                }
            )
        return {"runs": runs, "texts": self.decode is not None}

    @property
    def title(self) -> str:
        """The title of the page."""
        return heading([run.name for run in self.runs], [about(run) for run in self.runs])

    def groups(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Summaries of matching groups: {items, next, total}; go on from `next` while it is below `total`."""
        run = self.runs[0]
        found, following = run.search(
            query_of(given), _whole(given, "from", 0), min(_whole(given, "limit", PAGE), 1000), LOOK
        )
        items = [payload.summary(position, group) for position, group in found]
        return {"items": items, "next": following, "total": len(run)}

    def group(self, given: Mapping[str, str]) -> dict[str, Any]:
        """A whole group of run 0 or 1."""
        position, found = self._found(given)
        return payload.group(position, found, _whole(given, "first", 0))

    def message(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The whole of a text that was cut. rollout -1: of the shared prompt."""
        _, found = self._found(given)
        numbers = _whole(given, "rollout", 0, low=-1), _whole(given, "message", 0), _whole(given, "part", 0)
        text = payload.full_text(found, *numbers)
        if text is None:
            raise BadRequest("there is no such text")
        return {"text": text}

    def tokens(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The token sequences of a rollout."""
        _, found = self._found(given)
        return {"sequences": payload.tokens(found, _whole(given, "rollout", 0), self.decode)}

    def comparison(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The comparison of the two runs, or how far it is."""
        if self.diff is None:
            raise BadRequest("there is no second run")
        if not self.diff.ready.is_set():
            return {"ready": False, "done": self.diff.done, "total": self.diff.total}
        sort = given.get("sort", SORTS[0])
        start = _whole(given, "from", 0)
        rows, total = self.diff.rows(sort, start, PAGE)
        return {
            "ready": True,
            "problem": self.diff.problem,
            "counts": self.diff.counts(),
            "rows": rows,
            "next": start + len(rows),
            "total": total,
        }

    def _found(self, given: Mapping[str, str]) -> tuple[int, Any]:
        side = _whole(given, "run", 0)
        position = _whole(given, "n", 0)
        try:
            return position, self.runs[side].group(position)
        except IndexError:
            raise BadRequest(f"there is no group {position}") from None

    def close(self) -> None:
        if self.diff is not None:
            self.diff.stop()
        for run in self.runs:
            run.close()


def query_of(given: Mapping[str, str]) -> Query:
    """The filters of a request. Raises BadRequest."""
    return Query(
        text=given.get("q", "")[:500],
        env=given.get("env", "")[:500],
        stop=given.get("stop", "")[:500],
        low=_number(given, "low"),
        high=_number(given, "high"),
        failed=given.get("failed") == "1",
    )


def _whole(given: Mapping[str, str], name: str, default: int, *, low: int = 0) -> int:
    text = given.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise BadRequest(f"{name} is not a whole number") from None
    if not low <= value < 1 << 62:
        raise BadRequest(f"{name} is out of range")
    return value


def _number(given: Mapping[str, str], name: str) -> float | None:
    text = given.get(name, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise BadRequest(f"{name} is not a number") from None
    return value if abs(value) < float("inf") else None
