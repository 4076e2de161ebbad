"""A trainer of another package with a program of the test in its place, and a GPU that is feigned."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import Result


def feigned(
    cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, folder: Path, running: Any, main: Path, version: str
) -> Callable[..., Result]:
    """train("--steps", 2): the command line, with an installed package of this version that takes all settings.

    running: the class that watches it. main: the program. The run is in folder / "run".
    """
    from atropos_cli.distributed import trainer

    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    monkeypatch.setattr(trainer, "gpus_here", lambda: 1)
    monkeypatch.setattr(trainer, "ask", lambda *given, **more: {running.package: version, "engine": "1"})
    monkeypatch.setattr(running, "main", (str(main),))
    monkeypatch.setattr(running, "tick", 0.1)
    monkeypatch.setenv("WORLD_SIZE", "1")  # set by --processes
    monkeypatch.setenv("ATROPOS_TRAINER__PYTHON", sys.executable)
    monkeypatch.setenv("ATROPOS_TRAIN__ENV", "arithmetic")
    monkeypatch.setenv("SCRIPT", str(folder / "script"))
    words = ("train", "grpo", "--trainer", running.package, "--model", model, "-o", folder / "run")
    return lambda *more: cli(*words, *more)
