"""The box around a worker: nobody inside is root, and nothing of the machine or of other processes is in reach."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.isolation.command import bubblewrap_command, readable_paths
from atropos_cli.isolation.inside import watch
from atropos_cli.isolation.shutin import FILES
from atropos_cli.isolation.spec import (
    HINT,
    WorkerCrashed,
    WorkerError,
    WorkerSpec,
    accept_isolation,
    is_machine_root,
    own_user_id,
    stored_isolation,
    ways,
)
from atropos_cli.isolation.worker import IsolatedWorker

MODULE = str(Path(__file__).with_name("echo_module.py"))
OF_THE_MACHINE = (
    *("kernel/core_pattern", "kernel/modprobe", "kernel/hostname", "kernel/panic", "kernel/randomize_va_space"),
    *("vm/swappiness", "vm/drop_caches", "vm/overcommit_memory", "fs/file-max", "fs/suid_dumpable"),
    *("net/ipv4/ip_forward", "user/max_user_namespaces"),
)
PATHS = [f"/proc/sys/{name}" for name in OF_THE_MACHINE]
PATHS += [
    "/proc/sysrq-trigger",
    "/proc/1/oom_score_adj",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/power/state",
]
PATHS += ["/proc/self/uid_map", "/proc/1/mem", "/proc/irq/default_smp_affinity", "/dev/kmsg", "/dev/mem", "/usr/x"]


@pytest.fixture(params=["bubblewrap", "process"], scope="module")
def worker(request: pytest.FixtureRequest) -> Iterator[IsolatedWorker]:
    worker = IsolatedWorker(WorkerSpec("box", MODULE, isolation=request.param))
    try:
        worker.start()
    except WorkerError as error:
        pytest.skip(f"no isolation of level {request.param} here: {error}")
    yield worker
    worker.close()


def ask(worker: IsolatedWorker, do: str, **fields: Any) -> Any:
    return worker.ask_now({"do": do, **fields}, seconds=20)


def test_nobody_inside_is_the_machines_root(worker: IsolatedWorker) -> None:
    """As the machine sees it: every process that belongs to the worker once it has started."""
    ask(worker, "echo", text="x")
    assert worker.pid is not None
    proc = os.open("/proc", os.O_RDONLY)
    inside = [*watch.tree(proc, worker.pid), worker.pid][0]
    os.close(proc)
    status = Path(f"/proc/{inside}/status").read_text().splitlines()
    (ids,) = (line.split()[1:] for line in status if line.startswith("Uid:"))
    assert "0" not in ids
    assert ask(worker, "uid") != 0
    assert ask(worker, "capabilities") == [0, 0]


def test_what_belongs_to_the_machine_is_read_only(worker: IsolatedWorker) -> None:
    assert ask(worker, "openable", paths=PATHS) == []
    assert ask(worker, "openable", paths=["/dev/null"]) == ["/dev/null"], "the control"


def test_nothing_of_other_processes_can_be_read(worker: IsolatedWorker) -> None:
    assert ask(worker, "others") == []


def test_no_file_of_the_user_is_in_sight(worker: IsolatedWorker, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    for path in (secret, "/etc/passwd", Path.home() / ".bashrc", "/etc/hostname"):
        assert ask(worker, "read", path=str(path)) is None


@pytest.mark.parametrize("wanted", ["auto", "bubblewrap", "process"])
def test_root_itself_is_no_way(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    found = list(ways(wanted))
    assert found
    assert all(way.user in ("own", "inside") and not way.unprotected for way in found)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert {way.user for way in ways(wanted)} == {"same"}


MAPS = {
    "0 0 4294967295": (True, 1_900_000_000),
    "0 1000 1": (False, 0),
    "0 100000 65536": (False, 64_000),
    "0 0 65536": (True, 64_000),
    "0 0 1\n1 100000 65536": (True, 64_000),
    "0 0 1": (True, 0),
}


@pytest.mark.parametrize("text", MAPS)
def test_root_of_a_rootless_container_is_an_ordinary_user(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(Path, "read_text", lambda self: text)
    root, least = MAPS[text]
    assert is_machine_root() is root
    assert own_user_id() >= least
    assert {way.user for way in ways("process")} == ({"own"} if root else {"same"})


def test_only_who_asks_for_it_gets_no_protection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    *better, last = ways("unprotected")
    assert (last.level, last.user, last.unprotected) == ("process", "same", True)
    assert [way.user for way in better] == ["own"]


@pytest.mark.parametrize("level", ["bubblewrap", "process"])
def test_where_nothing_protects_the_start_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    worker = IsolatedWorker(WorkerSpec("box", MODULE, isolation=level))  # type: ignore[arg-type]
    with pytest.raises(WorkerCrashed, match=f"no box worker can be started: {level}: ") as caught:
        worker.start()
    assert caught.value.hint == HINT
    assert "unprotected" in HINT


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_python_that_only_root_may_read_is_no_reason_to_stay_root(tmp_path: Path) -> None:
    """As below root's home: the folder is shown under its own path, whose parents nobody else could enter."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "packages").mkdir()
    (private / "packages" / "mine.py").write_text("VALUE = 1")
    worker = IsolatedWorker(
        WorkerSpec("box", MODULE, '{"import": "mine"}', show=(str(private / "packages"),), isolation="bubblewrap")
    )
    try:
        worker.start()
    except WorkerError as error:
        if "bwrap is not installed" in str(error):
            pytest.skip(str(error))
        raise
    try:
        assert ask(worker, "uid") >= 1_900_000_000
        assert ask(worker, "write", path="/box/x") is True
    finally:
        worker.close()


def test_a_level_below_the_best_is_not_taken_from_a_file() -> None:
    for stored in ("auto", "bubblewrap", "namespaces"):
        assert stored_isolation(stored) == stored
    for other in ("process", "unprotected", None, 3, ["process"], {}):
        assert stored_isolation(other) == "auto"
    accept_isolation("process")
    assert stored_isolation("process") == "process"
    assert stored_isolation("unprotected") == "auto"


def test_the_files_that_run_inside_need_nothing_else_of_the_package() -> None:
    files = [path for name in FILES for path in (Path(name).rglob("*.py") if Path(name).is_dir() else [Path(name)])]
    assert len(files) > 8
    for path in files:
        names = set(re.findall(r"^ *(?:from|import) (atropos_cli[\w.]*)", path.read_text(), re.MULTILINE))
        assert names <= {f"atropos_cli.isolation{end}" for end in ("", ".child", ".inside")}, path


def test_root_changes_its_user_without_a_namespace_that_would_map_it() -> None:
    command = bubblewrap_command("bwrap", readable_paths(), changes_user=True)
    assert not {"--unshare-all", "--unshare-user"} & set(command)
    assert {"--unshare-pid", "--unshare-net", "--unshare-ipc", "CAP_SETUID"} <= set(command)
    place = command.index("/proc/sys")
    assert command[place - 1 : place + 2] == ["--ro-bind", "/proc/sys", "/proc/sys"]
    assert "/sys" not in command


def test_without_landlock_and_namespaces_an_ordinary_user_is_refused() -> None:
    """In a process of its own: what it gives up is for good."""
    program = (
        "from atropos_cli.isolation.inside import confine, landlock, linux\n"
        "landlock.version = lambda: 0\n"
        "linux.NEWUSER = 0xFFFFFFFF\n"
        "print(confine.apart_from_others(['/usr'], ['/tmp'], False), confine.apart_from_others([], [], True))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]
