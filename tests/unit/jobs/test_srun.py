"""Steps whose srun gives up, since the controller does not answer."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from atropos_cli.jobs import srun
from atropos_cli.jobs.srun import SrunStep

SILENT = "srun: error: Unable to confirm allocation for job 2: Socket timed out on send/recv operation"

HELD = "srun: error: Unable to create step for job 3: Memory required by task is not available"


def step(folder: Path, code: str) -> SrunStep:
    """Its program is Python with `turn`, the number of the start, and `endpoint`, the file that a node publishes."""
    log, endpoint = folder / "log", folder / "endpoint.json"
    starts = iter(range(1, 1000))

    def launch() -> subprocess.Popen[bytes]:
        text = f"import pathlib, sys\nturn, endpoint = {next(starts)}, pathlib.Path({str(endpoint)!r})\n{code}"
        with log.open("ab") as output:
            return subprocess.Popen([sys.executable, "-c", text], stdout=output, stderr=subprocess.STDOUT)

    return SrunStep(launch, endpoint, log)


def ended(one: SrunStep) -> int | None:
    deadline = time.monotonic() + 30
    while (code := one.poll()) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return code


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(srun, "_BETWEEN", 0.05)


def test_a_step_is_started_again_until_the_controller_answers(tmp_path: Path) -> None:
    code = f"print(turn)\nif turn < 3: print({SILENT!r}); sys.exit(1)\nsys.exit(5)"
    assert ended(step(tmp_path, code)) == 5
    assert [line for line in (tmp_path / "log").read_text().splitlines() if line.isdigit()] == ["1", "2", "3"]


def test_a_step_waits_for_the_memory_of_one_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that was down does not know yet that it has ended."""
    code = f"print(turn)\nif turn < 4: print({HELD!r}); sys.exit(1)\nsys.exit(0)"
    assert ended(step(tmp_path, code)) == 0
    monkeypatch.setattr(srun, "_HELD_STARTS", 3)
    assert ended(step(tmp_path, f"print({HELD!r}); sys.exit(1)")) == 1


@pytest.mark.parametrize(
    "code",
    [
        "print('srun: error: Unable to create step for job 2: Invalid node name'); sys.exit(1)",
        f"endpoint.write_text('{{}}'); print({SILENT!r}); sys.exit(1)",  # the program has run
        f"print('my own words: ' + {SILENT!r}); sys.exit(1)",
    ],
)
def test_other_ends_are_ends(tmp_path: Path, code: str) -> None:
    assert ended(step(tmp_path, f"print('start')\n{code}")) == 1
    assert (tmp_path / "log").read_text().count("start\n") == 1


def test_a_step_that_is_stopped_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(srun, "_BETWEEN", 60.0)
    one = step(tmp_path, f"print({SILENT!r}); sys.exit(1)")
    deadline = time.monotonic() + 30
    while not (tmp_path / "log").read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    assert one.poll() is None
    one.stop()
    assert one.poll() == 1
