"""What each level keeps programs from: the machine, other processes, and the judge."""

# ruff: noqa: E501 (programs as they are)

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import atropos_code
import pytest
from atropos_code import isolation, judging
from atropos_code.datasets import MbppEnvironment
from atropos_code.errors import SandboxError
from atropos_code.freeform import CodeExecEnvironment
from atropos_code.game import CodeGameEnvironment
from atropos_code.isolation import detect
from atropos_code.outcomes import Limits
from atropos_code.sandbox import Sandbox
from atropos_code.suite import Suite

from atropos_cli.sdk import Task
from atropos_cli.sdk.isolation import Way, accept_isolation, ways

LIMITS = Limits(timeout_s=8.0)
OTHERS = """
import os
def look(path, size):
    try:
        with open(path, 'rb') as file:
            return file.read(size)
    except (OSError, OverflowError):
        return b''
def follow(pid, fd):
    try:
        return os.readlink(f'/proc/{pid}/fd/{fd}')
    except OSError:
        return ''
def f(what):
    found = []
    for pid in os.listdir('/proc'):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        if what == 'environ' and look(f'/proc/{pid}/environ', 99): found.append(pid)
        if what == 'maps' and look(f'/proc/{pid}/maps', 99): found.append(pid)
        if what == 'stack' and look(f'/proc/{pid}/auxv', 99): found.append(pid)
        if what == 'memory':
            try: os.close(os.open(f'/proc/{pid}/mem', os.O_RDWR))
            except OSError: continue
            if look(f'/proc/{pid}/cmdline', 9): found.append(pid)
        if what == 'descriptors':
            try: fds = os.listdir(f'/proc/{pid}/fd')
            except OSError: continue
            found += [fd for fd in fds if follow(pid, fd)]
        if what == 'folders':
            try: found.append(os.listdir(f'/proc/{pid}/cwd/'))
            except OSError: continue
    return found
"""
KINDS = ("environ", "maps", "stack", "memory", "descriptors", "folders")
MACHINE = """
import os
def f(paths):
    found = []
    for path in paths:
        try: os.close(os.open(path, os.O_WRONLY))
        except OSError: continue
        found.append(path)
    return found
"""
PATHS = (
    *("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/swappiness", "/proc/sys/fs/file-max"),
    *("/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger", "/proc/1/oom_score_adj", "/proc/1/uid_map"),
    *("/sys/kernel/mm/transparent_hugepage/enabled", "/dev/mem", "/dev/kmsg", "/usr/x", "/etc/passwd"),
)


@pytest.fixture(scope="module", params=["namespaces", "bubblewrap", "process"])
def level(request: pytest.FixtureRequest, usable: Callable[[str], str]) -> Iterator[Sandbox]:
    with Sandbox(isolation=usable(request.param), workers=2) as sandbox:
        yield sandbox


def test_no_program_reads_another_process(level: Sandbox) -> None:
    tests = tuple(f"assert f({kind!r}) == [], (f({kind!r}), {kind!r})" for kind in KINDS)
    result = level.test(OTHERS, Suite(tests=tests, names=("f",)), limits=LIMITS)
    if level.isolation.way.unprotected and os.getuid() == 0:
        # Nothing is promised for it; other processes' memory is out of reach all the same.
        assert result.passed >= len(KINDS) - 1, result
    else:
        assert result.verdict == "passed", result


def test_no_program_changes_the_machine(level: Sandbox) -> None:
    if level.isolation.way.unprotected:
        pytest.skip("root without protection can")
    suite = Suite(tests=(f"assert f({list(PATHS)!r}) == []", "assert f(['/dev/null']) == ['/dev/null']"), names=("f",))
    result = level.test(MACHINE, suite, limits=LIMITS)
    assert result.verdict == "passed", result


def test_no_program_is_the_machines_root(level: Sandbox) -> None:
    """As the machine sees it, while it runs."""
    if level.isolation.way.unprotected:
        pytest.skip("that is what it accepts")
    marker = f"marker-{os.getpid()}"
    program = (
        f"import os, subprocess, time\nopen('{marker}', 'w').close()\nprint(os.stat('{marker}').st_uid, os.getuid())"
    )
    shown = level.run(program, limits=LIMITS).stdout.split()
    assert "0" not in shown
    assert len(shown) == 2
    if os.getuid() == 0:
        assert level.isolation.own_user


@pytest.mark.parametrize("wanted", ["auto", *isolation.LEVELS])
def test_root_itself_is_no_way(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    found = list(ways(wanted, isolation.LEVELS))
    assert found
    assert all(way.user != "same" and not way.unprotected for way in found)
    *_, last = ways("unprotected", isolation.LEVELS)
    assert last == Way("process", unprotected=True)


WITHOUT_LANDLOCK = """
import sys
from atropos_code.sandbox import Sandbox, SandboxError
from atropos_code.suite import Suite
from atropos_code.outcomes import Limits
program, kinds = sys.argv[1], sys.argv[2].split()
tests = tuple(f"assert f({kind!r}) == [], {kind!r}" for kind in kinds)
with Sandbox(isolation="process", workers=2) as sandbox:
    try:
        assert "landlock" not in sandbox.isolation.features
    except SandboxError as error:
        print("refused", error)
    else:
        print(sandbox.test(program, Suite(tests=tests, names=("f",)), limits=Limits(timeout_s=8)))
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_without_landlock_programs_stay_apart_or_are_refused(open_folder: Path) -> None:
    """A copy of the package for a kernel without it: memory, environment and descriptors of others are closed."""
    package = Path(str(atropos_code.__file__)).parent
    shutil.copytree(package, open_folder / "atropos_code", ignore=shutil.ignore_patterns("__pycache__"))
    file = open_folder / "atropos_code" / "inside" / "landlock.py"
    text = file.read_text()
    begins = "def version() -> int:"
    assert begins in text
    file.write_text(text.replace(begins, f"{begins}\n    return 0\n\n\ndef _version() -> int:"))
    command = [sys.executable, "-c", WITHOUT_LANDLOCK, OTHERS, "environ maps stack memory descriptors"]
    environment = {**os.environ, "PYTHONPATH": str(open_folder)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=open_folder)
    assert run.stdout.startswith("refused") or "verdict='passed'" in run.stdout, run.stdout + run.stderr


def test_a_stored_task_cannot_weaken_the_sandbox() -> None:
    def level_of(value: object) -> str:
        return str(judging._sandbox(Task(id="t", info={"sandbox": {"isolation": value}}))._wanted)  # type: ignore[dict-item]

    assert [level_of(value) for value in ("auto", "namespaces", "bubblewrap")] == ["auto", "namespaces", "bubblewrap"]
    assert [level_of(value) for value in ("unprotected", None, 3, ["unprotected"])] == ["auto"] * 4
    accept_isolation("unprotected")
    assert level_of("unprotected") == "unprotected"


async def test_a_level_that_does_not_protect_ends_a_run_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    for kind in (CodeExecEnvironment, CodeGameEnvironment, MbppEnvironment):
        judging.shared_sandbox("process")._isolation = None
        with pytest.raises(SandboxError, match="no program can be isolated here") as caught:
            await kind(kind.Config(isolation="process")).open()  # type: ignore[call-arg]
        assert caught.value.exit_code == 4
        assert "--isolation unprotected" in str(caught.value.hint)


GUESSES = {
    "endless": "class A:\n    def __iter__(s):\n        n = 0\n        while True:\n            yield n\n            n += 1\ndef f(x): return A()",
    "generator": "import itertools\ndef f(x): return itertools.count()",
    "contains": "class A:\n    def __contains__(s, x): return True\ndef f(x): return A()",
    "items": "class A:\n    def __getitem__(s, n): return n\ndef f(x): return A()",
    "equals": "class A:\n    def __eq__(s, o): return True\n    __hash__ = object.__hash__\ndef f(x): return [A()]",
}


@pytest.mark.parametrize("name", GUESSES)
def test_an_object_does_not_say_itself_what_is_in_it(sandbox: Sandbox, name: str) -> None:
    suite = Suite(tests=("assert 4711 in f(3)", "assert 'word' in f(3)", "assert f(3) in (4711, 12)"), names=("f",))
    assert sandbox.test(GUESSES[name], suite, limits=LIMITS).passed == 0


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): return [1, 4711]",
        "def f(x): return (n for n in (3, 4711, 5))",
        "class A:\n    def __iter__(s): return iter((4711, 1))\ndef f(x): return A()",
    ],
)
def test_plain_values_are_searched_as_ever(sandbox: Sandbox, code: str) -> None:
    suite = Suite(tests=("assert 4711 in f(3)", "assert 9 not in f(3)"), names=("f",))
    assert sandbox.test(code, suite, limits=LIMITS).verdict == "passed"


def test_what_a_level_is_stands_in_one_line(usable: Callable[[str], str]) -> None:
    found = detect(usable("process"))
    assert ("programs can reach what this user can reach" in found.describe()) == found.way.unprotected
