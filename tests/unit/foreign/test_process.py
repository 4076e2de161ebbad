"""A foreign process that is killed while it starts again costs no request."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from atropos_cli.foreign.process import Dialect, ForeignProcess
from atropos_cli.isolation.spec import WorkerCrashed

SIDE = """
import os
from pathlib import Path

async def start(settings):
    starts = Path(settings["starts"])
    starts.write_text(starts.read_text() + "x")
    if settings["dies"][len(starts.read_text()) - 1]:
        os.kill(os.getpid(), 9)
    return {}

async def answer(call, request):
    if request["do"] == "die":
        os.kill(os.getpid(), 9)
    return "done"
"""


@pytest.mark.parametrize("starts_again", [True, False])
def test_killed_while_it_starts_again(tmp_path: Path, starts_again: bool) -> None:
    (tmp_path / "side.py").write_text(SIDE)
    (tmp_path / "starts").write_text("")
    settings = {"starts": str(tmp_path / "starts"), "dies": [False, True, not starts_again]}

    async def play() -> object:
        process = ForeignProcess(Dialect("some", tmp_path / "side.py", ()), sys.executable, settings)
        try:
            await process.open()
            assert process.pid is not None
            await process._drop(process._worker)  # type: ignore[arg-type]
            return await process.request({"do": "say"}, seconds=60)
        finally:
            await process.close()

    if starts_again:
        assert asyncio.run(play()) == "done"
    else:
        with pytest.raises(WorkerCrashed, match="did not start: its process was killed by SIGKILL"):
            asyncio.run(play())
