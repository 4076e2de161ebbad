"""Sources of tools over the odd server, and the command line in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from atropos_mcp.config import McpConfig
from atropos_mcp.source import McpTools
from in_process import Result, command_line

ODD = Path(__file__).with_name("odd_server.py")


@pytest.fixture
def odd() -> Callable[..., McpTools]:
    """A source over the odd server in one of its modes."""

    def make(mode: str = "plain", **options: Any) -> McpTools:
        return McpTools(f"{sys.executable} {ODD} {mode}", McpConfig(**{"start_timeout": 30.0, **options}))

    return make


@pytest.fixture
def cli(atropos_clean: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """The command line in this process, in an empty folder."""
    yield from command_line(capfd)
