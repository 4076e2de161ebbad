"""TensorBoard: event files below RUN/tensorboard, written by tensorboardX or by torch's own writer."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from atropos_cli.sdk import JsonDict, TrackedRun, Tracker


class TensorBoardTracker(Tracker):
    """Scalars by step, completions and the summary as text."""

    name = "tensorboard"

    def __init__(self, run: TrackedRun) -> None:
        self._writer_class = _writer_class()
        self._told = run
        self._folder = run.folder / "tensorboard"
        self._resume = run.resume
        self._writer: Any = None

    def metrics(self, step: int, values: Mapping[str, float | None]) -> None:
        writer = self._open(step)
        for name, value in values.items():
            if value is not None:
                writer.add_scalar(name, value, step)

    def samples(self, step: int, rows: Sequence[JsonDict]) -> None:
        for suite in sorted({self._suite(row) for row in rows}):
            shown = [row for row in rows if self._suite(row) == suite]
            self._open(step).add_text(f"samples/{suite}", "\n\n---\n\n".join(map(_text, shown)), step)

    def summary(self, step: int, values: Mapping[str, float | str]) -> None:
        lines = [f"    {' '.join(f'{name}: {value}'.split())}" for name, value in values.items()]
        self._open(step).add_text("summary", "\n".join(lines), step)

    def finish(self, code: int) -> None:
        if self._writer is not None:
            self._writer.close()

    def _suite(self, row: JsonDict) -> str:
        return str(row.get("suite") or self._told.command)

    def _open(self, step: int) -> Any:
        """The writer; of a resumed run, what stands from its first step on in earlier files is not shown."""
        if self._writer is None:
            purge = {"purge_step": step} if self._resume else {}
            self._writer = self._writer_class(str(self._folder), **purge)
        return self._writer


def _writer_class() -> Any:
    try:
        return importlib.import_module("tensorboardX").SummaryWriter
    except ModuleNotFoundError as missing:
        try:
            return importlib.import_module("torch.utils.tensorboard").SummaryWriter
        except ImportError:
            raise missing from None


def _text(row: JsonDict) -> str:
    """A completion as Markdown: texts are indented, so that nothing in them is taken for markup."""
    lines = []
    for name in ("prompt", "completion"):
        body = "\n".join(f"    {line}" for line in str(row.get(name)).splitlines())
        lines.append(f"{name}:\n\n{body}")
    rest = ", ".join(f"{name} `{row.get(name)!r}`" for name in ("extracted", "expected", "reward", "correct"))
    return "\n\n".join([*lines, rest])
