"""TensorBoard: event files below RUN/tensorboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atropos_cli.builtin.trackers.eventfile import EventFile
from atropos_cli.sdk import JsonDict
from atropos_cli.sdk.outputs import TrackedRun, Tracker


class TensorBoardTracker(Tracker):
    """Scalars by step, completions and the summary as text."""

    name = "tensorboard"

    def __init__(self, run: TrackedRun) -> None:
        self._told = run
        self._file: EventFile | None = None

    def metrics(self, step: int, values: Mapping[str, float | None]) -> None:
        self._open(step).scalars(step, {name: value for name, value in values.items() if value is not None})

    def samples(self, step: int, rows: Sequence[JsonDict]) -> None:
        for suite in sorted({self._suite(row) for row in rows}):
            shown = [row for row in rows if self._suite(row) == suite]
            self._open(step).text(step, f"samples/{suite}", "\n\n---\n\n".join(map(_text, shown)))

    def summary(self, step: int, values: Mapping[str, float | str]) -> None:
        lines = [f"    {' '.join(f'{name}: {value}'.split())}" for name, value in values.items()]
        self._open(step).text(step, "summary", "\n".join(lines))

    def finish(self, code: int) -> None:
        if self._file is not None:
            self._file.close()

    def _suite(self, row: JsonDict) -> str:
        return str(row.get("suite") or self._told.command)

    def _open(self, step: int) -> EventFile:
        """The file; of a resumed run, what stands from its first step on in earlier files is not shown."""
        if self._file is None:
            self._file = EventFile(self._told.folder / "tensorboard", purge_from=step if self._told.resume else None)
        return self._file


def _text(row: JsonDict) -> str:
    """A completion as Markdown: texts are indented, so that nothing in them is taken for markup."""
    lines = []
    for name in ("prompt", "completion"):
        body = "\n".join(f"    {line}" for line in str(row.get(name)).splitlines())
        lines.append(f"{name}:\n\n{body}")
    rest = ", ".join(f"{name} {_plain(row.get(name))}" for name in ("extracted", "expected", "reward", "correct"))
    return "\n\n".join([*lines, rest])


def _plain(value: object) -> str:
    """In code marks, which nothing in it can close."""
    return "`" + repr(value).replace("`", "'") + "`"
