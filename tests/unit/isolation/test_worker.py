"""Isolated workers: what they answer, what they cannot do, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.isolation.command import WORK, bubblewrap_command, hides_tmp
from atropos_cli.isolation.spec import WorkerCrashed, WorkerError, WorkerMemory, WorkerSpec, WorkerTimeout
from atropos_cli.isolation.worker import IsolatedWorker, shared_worker

MODULE = str(Path(__file__).with_name("echo_module.py"))


def make(**fields: Any) -> IsolatedWorker:
    return IsolatedWorker(WorkerSpec(**{"name": "test", "module": MODULE, **fields}))


@pytest.fixture(params=["bubblewrap", "process"])
def worker(request: pytest.FixtureRequest) -> Iterator[IsolatedWorker]:
    worker = make(isolation=request.param, memory_mb=256)
    try:
        worker.start()
    except WorkerError as error:
        if request.param != "process":
            pytest.skip(f"no isolation of level {request.param} here: {error}")
        # As root with a Python that nobody else may read; the limits of the level are the same.
        worker = make(isolation="unprotected", memory_mb=256)
    yield worker
    worker.close()


def ask(worker: IsolatedWorker, do: str, *, seconds: float = 10, fork: bool = True, **fields: Any) -> Any:
    return worker.ask_now({"do": do, **fields}, seconds=seconds, fork=fork)


def test_an_answer(worker: IsolatedWorker) -> None:
    assert ask(worker, "echo", text="é\ud800") == "é\ud800"
    assert asyncio.run(worker.ask({"do": "echo", "text": [1, {"a": None}]}, seconds=5)) == [1, {"a": None}]


def test_a_forked_request_leaves_nothing_to_the_next(worker: IsolatedWorker) -> None:
    assert [ask(worker, "remember") for _ in range(3)] == [1, 1, 1]
    assert [ask(worker, "remember", fork=False) for _ in range(3)] == [1, 2, 3]
    assert ask(worker, "remember") == 4


def test_files_and_shared_memory_of_a_request_are_gone(worker: IsolatedWorker) -> None:
    assert ask(worker, "leave") == -1
    assert ask(worker, "find_left") == []


def test_what_is_late_too_large_or_dies_fails_alone(worker: IsolatedWorker) -> None:
    async def play() -> list[Any]:
        kinds = ("spin", "echo", "memory", "die", "echo", "raise", "flood", "echo")
        asked = [worker.ask({"do": kind, "text": "fine"}, seconds=1.5) for kind in kinds]
        return await asyncio.gather(*asked, return_exceptions=True)

    began = time.monotonic()
    spin, first, memory, die, second, raised, flood, third = asyncio.run(play())
    assert time.monotonic() - began < 12
    assert isinstance(spin, WorkerTimeout)
    assert isinstance(memory, WorkerMemory)
    assert isinstance(die, WorkerCrashed)
    assert "exit status 3" in str(die)
    assert isinstance(raised, WorkerError)
    assert (raised.type, "moves" in str(raised)) == ("KeyError", True)
    assert isinstance(flood, WorkerError)
    assert (first, second, third) == ("fine",) * 3


def test_a_child_reaches_neither_network_nor_files_nor_its_parent(worker: IsolatedWorker, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    secret.chmod(0o600)
    assert ask(worker, "fork") == "refused"
    assert ask(worker, "parent_memory") == "refused"
    for kind in ("kill_parent", "kill_all"):
        with pytest.raises(WorkerError, match="PermissionError"):
            ask(worker, kind)
    assert set(ask(worker, "environment")) >= {"HOME", "PYTHONHASHSEED"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert ask(worker, "connect", port=server.getsockname()[1]) == "refused"
    assert not [name for name in ask(worker, "environment") if "ATROPOS" in name or "KEY" in name]
    if worker.level == "bubblewrap":
        assert ask(worker, "read", path=str(secret)) is None
        assert ask(worker, "write", path="/usr/x") is False
        assert ask(worker, "write", path="/box/x") is True


def test_the_hash_seed_is_fixed() -> None:
    first, second = make(), make()
    try:
        assert ask(first, "hash") == ask(second, "hash")
    finally:
        first.close()
        second.close()


def test_a_lost_worker_is_started_again(worker: IsolatedWorker) -> None:
    with pytest.raises(WorkerCrashed, match="twice"):
        ask(worker, "die", fork=False)
    assert ask(worker, "echo", text="back") == "back"


def test_its_own_work_has_a_deadline_too(worker: IsolatedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_cli.isolation.worker.GRACE_S", 0.3)
    with pytest.raises(WorkerCrashed):
        ask(worker, "sleep", seconds=0.2, fork=False, pause=5)
    assert ask(worker, "echo", text="back") == "back"


def test_nothing_is_left_after_close(worker: IsolatedWorker) -> None:
    ask(worker, "echo", text="x")
    pid = worker.pid
    assert pid is not None
    below = _descendants(pid)
    worker.close()
    assert worker.pid is None
    gone_by = time.monotonic() + 5
    while time.monotonic() < gone_by and any(Path(f"/proc/{one}").exists() for one in (pid, *below)):
        time.sleep(0.02)
    assert not [one for one in (pid, *below) if Path(f"/proc/{one}").exists()]
    assert ask(worker, "echo", text="again") == "again"


def _descendants(pid: int) -> list[int]:
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [other for child in children for other in (child, *_descendants(child))]


def test_a_module_that_does_not_load_is_told_with_its_error() -> None:
    worker = make(settings='{"import": "no_such_package"}')
    with pytest.raises(WorkerCrashed, match="no_such_package") as caught:
        worker.start()
    assert caught.value.type == "ModuleNotFoundError"


def test_folders_that_are_shown_can_be_imported_from(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("VALUE = 1")
    tmp_path.chmod(0o755)
    worker = make(settings='{"import": "mine", "n": 1}', show=(str(tmp_path),))
    try:
        assert ask(worker, "settings") == {"import": "mine", "n": 1}
    finally:
        worker.close()


def test_more_requests_than_processes_wait_their_turn() -> None:
    worker = make(most=2)
    try:

        async def play() -> list[Any]:
            return await asyncio.gather(*(worker.ask({"do": "echo", "text": n}, seconds=5) for n in range(40)))

        assert asyncio.run(play()) == list(range(40))
    finally:
        worker.close()


def test_the_shared_worker_is_one_for_a_spec() -> None:
    spec = WorkerSpec(name="test", module=MODULE)
    assert shared_worker(spec) is shared_worker(WorkerSpec(name="test", module=MODULE))
    assert shared_worker(spec) is not shared_worker(WorkerSpec(name="test", module=MODULE, memory_mb=1))


def test_the_command_shows_paths_read_only_and_hides_the_rest(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/usr")
    command = bubblewrap_command("/usr/bin/bwrap", ["/usr", str(link)], ["--as-pid-1"])
    assert command[0] == "/usr/bin/bwrap"
    assert command[-1] == "--"
    assert command[command.index("--ro-bind") :][:3] == ["--ro-bind", "/usr", "/usr"]
    assert ["--symlink", "/usr", str(link)] == command[command.index("--symlink") :][:3]
    assert "--unshare-all" in command
    assert "--bind" not in command
    assert command[command.index("--tmpfs") + 1] == WORK
    assert not hides_tmp(["/tmp/venv/lib"])
    assert hides_tmp(["/usr"])
