"""Where the processes of a training run meet, and how they end together. Real training: atropos-trl's tests."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from atropos_training import processes
from atropos_training.processes import Launch, World, own_instance
from atropos_training.ranks import wait_for

from atropos_cli.errors import ExitCode, LaunchError, UsageError


def test_one_host_and_several() -> None:
    assert World.here(1, {}) == World()
    assert World.here(8, {}).size == 8
    env = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "n0", "MASTER_PORT": "29500"}
    assert World.here(8, env) == World(8, 2, 1, "n0", 29500)
    assert World.here(8, env).size == 16


def test_a_process_of_a_launcher_starts_no_others() -> None:
    started = {"RANK": "1", "WORLD_SIZE": "2", "NNODES": "2", "NODE_RANK": "1"}
    assert World.here(1, started).size == 1
    with pytest.raises(UsageError, match="RANK is set"):
        World.here(2, started)


@pytest.mark.parametrize(
    ("env", "what"),
    [
        ({"NNODES": "two"}, "NNODES='two' is not a number"),
        ({"NNODES": "2", "NODE_RANK": "2"}, "NODE_RANK=2 is not below NNODES=2"),
        ({"NNODES": "2", "NODE_RANK": "0"}, "do not know where to meet"),
        ({"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "n0"}, "do not know where to meet"),
    ],
)
def test_variables_that_do_not_agree(env: dict[str, str], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        World.here(1, env)


def _launch(program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[ExitCode, list[str]]:
    """Three processes of a module of that text in place of the program."""
    package = tmp_path / "atropos_cli"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(f"import os, signal, sys, time\nrank = int(os.environ['RANK'])\n{program}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(processes, "_NOTICE", 1.0)
    said: list[str] = []
    return Launch(World(3), [str(tmp_path)], said.append).run(), said


def test_each_knows_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    write = f"open(sys.argv[1] + f'/{{rank}}', 'w').write(' '.join(os.environ[name] for name in {names}))"
    assert _launch(write, monkeypatch, tmp_path) == (ExitCode.OK, [])
    assert [(tmp_path / str(n)).read_text() for n in range(3)] == [f"{n} {n} 3 3 127.0.0.1" for n in range(3)]


@pytest.mark.parametrize("code", [ExitCode.INTERRUPTED, ExitCode.DATA])
def test_the_code_is_that_of_rank_0(code: ExitCode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _ = _launch(f"sys.exit({int(code)} if rank == 0 else 0)", monkeypatch, tmp_path)
    assert found == code


def test_a_rank_that_fails_ends_all_and_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = "if rank == 2: sys.exit('no memory on this GPU')\ntime.sleep(60)"
    began = time.monotonic()
    code, said = _launch(program, monkeypatch, tmp_path)
    assert (code, said) == (ExitCode.FAILED, ["rank 2: no memory on this GPU"])
    assert time.monotonic() - began < 20


def test_a_rank_that_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, said = _launch("if rank == 1: os.kill(os.getpid(), 9)\ntime.sleep(60)", monkeypatch, tmp_path)
    assert code == ExitCode.TRAINER
    assert said == ["rank 1 was ended by signal SIGKILL; --resume continues from the last checkpoint"]


def test_waiting_for_the_weights_of_a_step(tmp_path: Path) -> None:
    path = tmp_path / "sync" / "loaded"
    path.parent.mkdir()
    path.write_text("3")
    waiter = threading.Thread(target=wait_for, args=(path, "4"), daemon=True)
    waiter.start()
    waiter.join(0.3)
    assert waiter.is_alive()
    path.write_text("4")
    waiter.join(5)
    assert not waiter.is_alive()


def test_each_process_is_shown_its_own_instance() -> None:
    """CUDA gives a process the first of several instances of divided GPUs (MIG), and no other."""
    two = {"CUDA_VISIBLE_DEVICES": "MIG-1111, MIG-2222"}
    assert [own_instance(two, number) for number in (0, 1)] == [
        {"CUDA_VISIBLE_DEVICES": "MIG-1111"},
        {"CUDA_VISIBLE_DEVICES": "MIG-2222"},
    ]
    with pytest.raises(LaunchError, match="names 2"):
        own_instance(two, 2)
    for whole in ({}, {"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "GPU-1111"}):
        assert own_instance(whole, 1) == {}
