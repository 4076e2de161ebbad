"""A foreign process that is killed while it starts again costs no request."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from atropos_cli.foreign.process import Dialect, ForeignFailed, ForeignProcess
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


ODD = """
class Unsaid(Exception):
    def __str__(self):
        raise ValueError("no text")

class Undumped:
    def model_dump(self):
        raise RuntimeError("it cannot be dumped")

class Own(BaseException):
    pass

async def start(settings):
    return {}

async def answer(call, request):
    kind = request["do"]
    if kind == "circle":
        circle = []
        circle.append(circle)
        return circle
    if kind == "undumped":
        return {"value": Undumped()}
    if kind == "unsaid":
        raise Unsaid()
    if kind == "own":
        raise Own("not an Exception")
    return kind
"""


def test_what_cannot_be_sent_or_is_no_common_exception_fails_at_once(tmp_path: Path) -> None:
    (tmp_path / "side.py").write_text(ODD)

    async def play() -> list[tuple[str, str]]:
        process = ForeignProcess(Dialect("some", tmp_path / "side.py", ()), sys.executable, {})
        found = []
        try:
            for kind in ("circle", "undumped", "unsaid", "own"):
                with pytest.raises(ForeignFailed) as raised:
                    await process.request({"do": kind}, seconds=20)
                found.append((raised.value.type, raised.value.message))
            assert await process.request({"do": "well"}, seconds=20) == "well"
            assert process.restarts == 0
        finally:
            await process.close()
        return found

    types, messages = zip(*asyncio.run(play()), strict=True)
    assert types == ("RecursionError", "RuntimeError", "Unsaid", "Own")
    assert messages[1:] == (
        "RuntimeError: it cannot be dumped",
        "Unsaid: an exception that says nothing",
        "Own: not an Exception",
    )
