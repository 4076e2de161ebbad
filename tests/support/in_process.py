"""The command line in the process of a test, and what it knows of the installed plugins."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Result:
    """What one call of the program did."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def command_line(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """The body of a fixture: cli("env", "list") -> Result. The registry is read anew at each call."""
    from atropos_cli.cli import app
    from atropos_cli.plugins.discovery import reset_registry

    def call(*args: Any) -> Result:
        reset_registry()
        capfd.readouterr()
        variables = dict(os.environ)
        try:
            code = app.run([str(arg) for arg in args])
        finally:
            # Secrets, levels and --offline hold for a whole process, which here is that of the next call too.
            for name in set(os.environ) - set(variables):
                del os.environ[name]
            os.environ.update(variables)
        out = capfd.readouterr()
        return Result(code, out.out, out.err)

    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield call
    root.setLevel(level)  # --log-level, -q and -v
    root.handlers[:] = handlers
    reset_registry()
