"""Code and set-up for jobs in tmux: through a real sshd, and here; GPUs that must be free before anything starts."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.serving.machines import fake_smi, gpu_lines

from .slurm_support import ENV
from .tmux_support import SOCKET, Sshd, far_fixture, sshd_fixture, tmux_server, wait_for  # noqa: F401 (fixtures)

GEN = ("gen", "./sums.py:Sums", "--backend", "scripted", "--backend.replies", "1", "--limit", "2", "-o", "runs/play")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my project"
    (folder / "sub").mkdir(parents=True)
    (folder / "sums.py").write_text(ENV)
    (folder / ".gitignore").write_text("runs/\n*.bin\n")
    (folder / "weights.bin").write_bytes(b"x" * 100)
    monkeypatch.chdir(folder)
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run(["git", *who, *words], check=True, capture_output=True)
    return folder


def ended(far: Callable[..., Any], job: str) -> dict[str, Any]:
    far("logs", "-f", job)
    found: dict[str, Any] = far("status", job, "--json").json
    return found


def test_a_folder_is_brought_and_brought_again(far: Callable[..., Any], sshd: Sshd, project: Path) -> None:
    home = sshd.folder / "home"
    (home / ".bashrc").write_text("echo welcome; printf 'no newline'\n")
    place = home / "atropos-code/my project"
    first = far("run", "--name", "one", "--sync", ".", "--", *GEN)
    assert first.code == 0, first.stderr
    assert "2 files" in first.stderr
    assert "left out: .git/, weights.bin" in first.stderr
    assert f"2 files sent to box:{place}" in first.stderr
    status = ended(far, "one")
    assert (status["state"], status["code"]["changed"], len(status["code"]["commit"])) == ("finished", False, 40)
    assert len((place / "runs/play/groups.jsonl").read_text().splitlines()) == 2
    assert not (place / "weights.bin").exists()
    again = far("run", "--name", "two", "--sync", ".", "--", *GEN, "--resume")
    assert "0 files sent" in again.stderr
    assert ended(far, "two")["state"] == "finished"
    (project / "sums.py").write_text(ENV + "\n# changed\n")
    (project / "new.py").write_text("")
    third = far("run", "--name", "three", "--sync", ".", "--", "env", "list")
    assert "2 files sent" in third.stderr
    code = ended(far, "three")["code"]
    assert (code["changed"], "sums.py" in code["diff"], code["copy_at"]) == (True, True, str(place))
    assert (place / "sums.py").read_text().endswith("# changed\n")
    assert (place / "runs/play/groups.jsonl").exists()


def test_code_does_not_change_under_a_running_job(far: Callable[..., Any], sshd: Sshd, project: Path) -> None:
    slow = [*GEN, "--backend.delay-s", "30"]
    assert far("run", "--name", "long", "--sync", ".", "--", *slow).code == 0
    same = far("run", "--name", "beside", "--sync", ".", "--", "env", "list")
    assert same.code == 0, same.stderr
    (project / "sums.py").write_text(ENV + "\n# changed\n")
    refused = far("run", "--name", "other", "--sync", ".", "--", "env", "list")
    assert (refused.code, "job long runs in" in refused.stderr) == (7, True)
    place = sshd.folder / "home/atropos-code/my project"
    assert (place / "sums.py").read_text() == ENV
    elsewhere = far("run", "--name", "other", "--sync", ".", "--cwd", "~/else where", "--", "env", "list")
    assert elsewhere.code == 0, elsewhere.stderr
    assert (sshd.folder / "home/else where/sums.py").read_text().endswith("# changed\n")
    assert far("stop", "long", "--grace", "0").code == 0


@pytest.mark.slow
def test_odd_names_and_a_shell_that_talks_much(far: Callable[..., Any], sshd: Sshd, project: Path) -> None:
    """A greeting longer than what fits between us, before a request longer than that; bytes that are no text; links."""
    home = sshd.folder / "home"
    (home / ".bashrc").write_text("head -c 4000000 /dev/zero | tr '\\0' g; echo; echo said >&2\n")
    for number in range(12000):
        (project / f"{number:0100d}").symlink_to("sums.py")
    for name in (b"b\xff.py", b"-rf", b"two\nlines.py"):
        (project / os.fsdecode(name)).write_text("odd")
    (home / "outside").mkdir()
    (home / "outside/x.txt").write_text("precious")
    first = far("run", "--name", "one", "--sync", ".", "--", "env", "list")
    assert first.code == 0, first.stderr
    place = home / "atropos-code/my project"
    assert (place / os.fsdecode(b"b\xff.py")).read_text() == "odd"
    (place / "sub").symlink_to(home / "outside")
    (project / "sub/x.txt").write_text("ours")
    ended(far, "one")
    second = far("run", "--name", "two", "--sync", ".", "--", "env", "list")
    assert "1 files sent" in second.stderr
    assert "sub was changed there: kept as sub.kept-1" in second.stderr
    assert (home / "outside/x.txt").read_text() == "precious"
    assert ended(far, "two")["code"]["files"] == 12006


def test_dry_run_brings_nothing(far: Callable[..., Any], sshd: Sshd, project: Path) -> None:
    shown = far("run", "--sync", ".", "--dry-run", "--json", "--", "env", "list")
    assert shown.code == 0, shown.stderr
    assert "2 files" in shown.stderr
    assert shown.json["cwd"] == str(sshd.folder / "home/atropos-code/my project")
    assert not (sshd.folder / "home/atropos-code").exists()


def test_the_working_directory_is_the_same_part_of_the_copy(
    far: Callable[..., Any], sshd: Sshd, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "sub")
    (project / "sub/x.txt").write_text("")
    started = far("run", "--name", "sub", "--sync", "..", "--setup", "test -f x.txt", "--", "env", "list")
    assert started.code == 0, started.stderr
    assert ended(far, "sub")["state"] == "finished"


def test_a_folder_of_somebody_else_is_not_taken(far: Callable[..., Any], sshd: Sshd, project: Path) -> None:
    (sshd.folder / "home/mine").mkdir()
    (sshd.folder / "home/mine/thesis.tex").write_text("")
    refused = far("run", "--sync", ".", "--cwd", "~/mine", "--", "env", "list")
    assert (refused.code, "not brought there" in refused.stderr) == (7, True)
    shell = sshd.folder / "home/.bashrc"
    shell.write_text("echo quota exceeded; exit 0\n")
    early = far("run", "--sync", ".", "--", "env", "list")
    assert (early.code, "quota exceeded" in early.stderr) == (7, True)
    shell.unlink()
    missing = far("run", "--sync", "nothing", "--", "env", "list")
    assert (missing.code, "no such folder" in missing.stderr) == (6, True)
    large = far("run", "--sync", ".", "--sync-limit", "1M", "--", "env", "list")
    assert large.code == 0
    (project / "large").write_bytes(b"x" * (1 << 21))
    large = far("run", "--sync", ".", "--sync-limit", "1M", "--", "env", "list")
    assert (large.code, "the largest: large (2.1 MB)" in large.stderr) == (7, True)


def test_a_line_that_fails_there(far: Callable[..., Any], project: Path) -> None:
    lines = ["--setup", "export GIVEN='a b'", "--setup", 'test "$GIVEN" = "a b"', "--setup", "ls /no/where"]
    assert far("run", "--name", "bad", "--sync", ".", *lines, "--", *GEN).code == 0
    found = ended(far, "bad")
    assert (found["state"], found["exit_code"]) == ("failed", 2)
    assert found["reason"] == "the set-up ended with code 2, at: ls /no/where"
    assert "arithmetic" not in far("logs", "bad").stdout


def test_sync_needs_another_machine(cli: Callable[..., Any], project: Path) -> None:
    result = cli("tmux", "run", "--sync", ".", "--", "env", "list")
    assert (result.code, "job submit --on tmux" in result.stderr) == (2, True)


def test_gpus_there_are_looked_at_first(far: Callable[..., Any], sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    place = sshd.folder / "home/bin"
    fake_smi(place, monkeypatch, gpu_lines("a100", 2))
    text = (sshd.folder / "sshd_config").read_text().replace('"PATH=', f'"PATH={place}:')
    (sshd.folder / "sshd_config").write_text(text)
    subprocess.run(["kill", "-HUP", (sshd.folder / "pid").read_text().strip()], check=True)
    wait_for(lambda: far("run", "--gpus", "1", "--dry-run", "--", "env", "list").code == 0, "the new PATH")
    refused = far("run", "--gpus", "3", "--", "env", "list")
    assert (refused.code, "3 GPUs are asked for, and this machine has 2" in refused.stderr) == (7, True)
    assert (
        far("run", "--name", "ok", "--gpus", "2", "--setup", "echo has=$CUDA_VISIBLE_DEVICES", "env", "list").code == 0
    )
    assert "has=0,1" in far("logs", "-f", "ok").stdout


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Any]) -> Any:
    with tmux_server(monkeypatch):
        yield lambda verb, *args: cli("tmux", verb, "--socket", SOCKET, *args)


def test_two_jobs_do_not_get_the_same_gpu(
    here: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has not loaded its model yet, and another GPU is in somebody else's use."""
    monkeypatch.chdir(tmp_path)
    lines = gpu_lines("h100", 3).splitlines()
    lines[1] = lines[1].replace("81559, 1,", "81559, 40000,")
    fake_smi(tmp_path / "bin", monkeypatch, "\n".join(lines) + "\n")
    wait = ["--setup", "echo has=$CUDA_VISIBLE_DEVICES; sleep 30", "--", "env", "list"]
    for name, has in (("a", "0"), ("b", "2")):
        assert here("run", "--name", name, "--gpus", "1", *wait).code == 0
        wait_for(lambda name=name, has=has: f"has={has}" in here("logs", name).stdout, "the set-up")  # type: ignore[misc]
    refused = here("run", "--name", "c", "--gpus", "1", *wait)
    assert refused.code == 7
    for words in ("0 of 3 here are free", "0: job a", "1: 40000 of 81559 MiB", "2: job b"):
        assert words in refused.stderr
    here("stop", "a", "--grace", "0")
    assert here("run", "--name", "c", "--gpus", "1", *wait).code == 0
    for name in ("b", "c"):
        here("stop", name, "--grace", "0")


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_a_job_here_runs_in_a_copy(
    here: Callable[..., Any], cli: Callable[..., Any], project: Path, tmp_path: Path
) -> None:
    """The same submission again copies what has changed; while the job runs it does not."""
    on = ["job", "submit", "--on", "tmux", "--on-option", f"socket={SOCKET}", "--sync", "."]
    sub = [*on, "--folder", str(tmp_path / "job"), "--name", "copied"]
    gate = tmp_path / "gate"
    wait = ["--setup", f"until [ -e {shlex.quote(str(gate))} ]; do sleep 0.1; done"]
    words = [word for word in GEN if word not in ("-o", "runs/play")]
    started = cli(*sub, *wait, "--", *words)
    assert started.code == 0, started.stderr
    (project / "sums.py").write_text("raise SystemExit('edited later')\n")
    again = cli(*sub, *wait, "--", "env", "list")
    assert (again.code, "is running" in again.stderr or "is pending" in again.stderr) == (7, True)
    gate.touch()
    assert here("logs", "-f", "copied").code == 0
    found = cli("job", "status", str(tmp_path / "job"), "--json").json
    assert found["state"] == "finished", found
    assert (found["code"]["changed"], found["code"]["files"]) == (False, 2)
    assert (tmp_path / "job/code/sums.py").read_text() == ENV
    (project / "sums.py").write_text(ENV + "# more\n")
    cli("tmux", "list", "--socket", SOCKET, "--forget")
    third = cli(*sub, "--wait", "--", *words)
    assert third.code == 0, third.stderr
    assert (tmp_path / "job/code/sums.py").read_text() == ENV + "# more\n"
    assert json.loads((tmp_path / "job/job.json").read_text())["code"]["changed"] is True


def test_a_set_up_that_is_stopped(here: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert here("run", "--name", "stopped", "--setup", "echo begun; sleep 60.72", "--", "env", "list").code == 0
    wait_for(lambda: "begun" in here("logs", "stopped").stdout, "the set-up")
    assert here("stop", "stopped", "--grace", "20").code == 0
    found = here("status", "stopped", "--json").json
    assert (found["state"], found["exit_code"]) == ("cancelled", 128 + signal.SIGTERM)
    assert subprocess.run(["pgrep", "-f", "sleep 60.72"], capture_output=True).returncode == 1
