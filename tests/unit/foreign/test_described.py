"""What an environment says of itself is asked for in any place, and the asking can be broken off."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from atropos_cli.foreign.family import describe
from atropos_cli.foreign.process import Dialect

SIDE = """
import asyncio
import os
from pathlib import Path

async def start(settings):
    Path(settings["pid"]).write_text(str(os.getpid()))
    await asyncio.sleep(settings["seconds"])
    return {"doc": "some"}
"""


def asked(folder: Path, seconds: float) -> object:
    (folder / "side.py").write_text(SIDE)
    settings = {"pid": str(folder / "pid"), "seconds": seconds}
    return describe(Dialect("some", folder / "side.py", ()), sys.executable, settings)["doc"]


def test_in_a_loop(tmp_path: Path) -> None:
    async def ask() -> object:
        return asked(tmp_path, 0)

    assert asyncio.run(ask()) == "some"


def test_ctrl_c_ends_it_and_the_process(tmp_path: Path) -> None:
    def interrupt() -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        asked(tmp_path, 600)
    assert time.monotonic() - began < 120
    pid = int((tmp_path / "pid").read_text())
    while Path(f"/proc/{pid}").exists():  # by the process between, which sees that we have gone
        assert time.monotonic() - began < 120
        time.sleep(0.05)
