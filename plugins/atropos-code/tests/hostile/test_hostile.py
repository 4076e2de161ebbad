"""Hostile programs leave no process, no file outside their folder, no wrong reward, and a sandbox that still works."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from atropos_code.isolation import detect
from atropos_code.outcomes import Limits
from atropos_code.sandbox import Sandbox

PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = runpy.run_path(str(Path(__file__).with_name("programs.py")))[
    "PROGRAMS"
]
LIMITS = Limits(timeout_s=1.5, memory_mb=512, processes=24)
PLACES = ("/tmp", "/dev/shm", "/usr/lib", "/etc", str(Path.home()), "/var/tmp")


@pytest.fixture(scope="module", params=["namespaces", "bubblewrap", "process"])
def level(request: pytest.FixtureRequest, usable: Callable[[str], str]) -> Iterator[Sandbox]:
    os.environ["ATROPOS_TEST_SECRET"] = "only the parent knows"
    with Sandbox(isolation=usable(request.param), workers=2) as box:
        yield box
    del os.environ["ATROPOS_TEST_SECRET"]


def descendants() -> set[int]:
    """All processes below this one."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def marked_processes(marker: str) -> list[str]:
    """Processes anywhere whose command line holds the word."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                line = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in line:
                found.append(entry)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_hostile_program(level: Sandbox, name: str) -> None:
    marker = "m" + uuid.uuid4().hex
    code, expected = PROGRAMS[name]
    code = code.replace("{marker}", marker).replace("{{", "{").replace("}}", "}")
    boxes = {box.pid for idle in level._pool._idle.values() for box in idle}
    before = descendants()
    result = level.run(code, limits=LIMITS)
    assert result.outcome in expected, result
    assert result.wall_s < LIMITS.timeout_s + 3.0
    after = level.run("print(6 * 7)")
    assert after.outcome == "ran_with_output", "the next program is not run as usual"
    assert after.stdout == "42\n"
    deadline = time.monotonic() + 3.0
    while marked_processes(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not marked_processes(marker)
    # Boxes are ours; anything else below us is a leak.
    boxes |= {box.pid for idle in level._pool._idle.values() for box in idle}
    strays = descendants() - before - boxes
    if level.isolation.level == "bubblewrap":
        strays -= {pid for box in boxes for pid in _below(box)}
    assert not strays
    for place in PLACES:
        assert not [entry for entry in os.listdir(place) if marker in entry], f"a file was left in {place}"


def _below(root: int) -> set[int]:
    found: set[int] = set()
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            continue
        found |= {int(child) for child in children}
        waiting += [int(child) for child in children]
    return found


def test_the_corpus_is_large_enough() -> None:
    assert len(PROGRAMS) >= 40


def test_nothing_is_left_of_many_timeouts() -> None:
    """No zombie beyond the workers, no open file, no folder."""
    with Sandbox(workers=2) as box:
        box.run("pass")
        files = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            assert box.run("while True: pass", limits=Limits(timeout_s=0.1)).outcome == "timeout"
        assert len(os.listdir("/proc/self/fd")) == files
        zombies = [pid for pid in descendants() if _state(pid) == "Z"]
        assert not zombies


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def orphans() -> set[str]:
    """Boxes anywhere on the machine that nobody is the parent of any more."""
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                line = Path(f"/proc/{entry}/cmdline").read_bytes()
            except (OSError, IndexError):
                continue
            if stat[1] == "1" and b"atropos_code.inside" in line:
                found.add(entry)
    return found


@pytest.mark.parametrize("isolation", ["namespaces", "bubblewrap", "process"])
def test_boxes_that_are_just_starting_end_too(isolation: str, usable: Callable[[str], str]) -> None:
    """Also when the thread that started them is gone, and when the whole process is killed."""
    before = orphans()
    isolation = usable(isolation)
    level = detect(isolation)
    for pause in range(25):
        starter = ThreadPoolExecutor(1)
        box = starter.submit(level.make_box, 0).result()
        starter.shutdown()
        time.sleep(pause * 0.0004)
        box.close()
    program = (
        "import os\nfrom atropos_code.sandbox import Sandbox\n"
        f"box = Sandbox(isolation={isolation!r})\nbox.run('print(1)')\nos._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    deadline = time.monotonic() + 10.0
    while orphans() - before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not orphans() - before


def test_closing_ends_every_process() -> None:
    before = descendants()
    with Sandbox(workers=2) as box:
        box.run("print(1)")
        box.run("print(1)", hash_seed=1)
    assert descendants() <= before
