"""Lines that run before a job: what they leave, and which one failed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from atropos_cli.domain.job import Component, JobPlan
from atropos_cli.errors import UsageError
from atropos_cli.jobs.folder import read_record, write_job
from atropos_cli.jobs.placing import LocalPlacer
from atropos_cli.jobs.setup import SetupFailed, check_setup, set_up
from atropos_cli.jobs.supervisor import run_job

ENV = {"PATH": os.environ["PATH"], "OLD": "1"}


def test_variables_reach_the_programs() -> None:
    left = set_up(["export A='two\nlines' OLD=2", "B=not; unset OLD", 'export C="$A!"'], ENV, None)
    assert left == {"PATH": ENV["PATH"], "A": "two\nlines", "C": "two\nlines!"}


@pytest.mark.parametrize(
    ("line", "code", "reported"),
    [
        ("false", 1, 1),
        ("bash -c 'exit 3'", 3, 3),
        ("exit 0", 7, 0),
        ("no_such_command_9", 127, 127),
        ("echo 'unbalanced", None, None),
        ("cd /no/where", None, None),
        ("kill -9 $$", 137, 137),
        ("export X=$(false)y; test $X = z", 1, 1),
        ("no_such_command_9 | cat", 127, 127),
        ("cat /no/where | sort | head -1", 1, 1),
        ("cd /no/where && echo there", 1, 1),
        ("set +e; false", 1, 1),
        ("read answer", 1, 1),
        ("exec bash -c true", 7, 0),
        ('cat <<EOF\nit\'s "text"\nEOF\nfalse', 1, 1),
        ("eval() { :; }; exit() { :; }; test 1 = 2", 1, 1),
    ],
)
def test_a_failing_line_is_named(line: str, code: int | None, reported: int | None) -> None:
    with pytest.raises(SetupFailed) as failed:
        set_up(["export A=1", line, "touch /never"], ENV, None)
    assert failed.value.message.endswith(f"at: {line}")
    assert failed.value.code != 0
    if code is not None:
        assert failed.value.code == code
        assert f"code {reported}," in failed.value.message


def test_a_line_that_handles_its_failure_goes_on() -> None:
    assert set_up(["false || export A=1", "if false; then exit 4; fi"], ENV, None)["A"] == "1"


def test_a_script_that_turns_the_checks_off(tmp_path: Path) -> None:
    """As those of environments do."""
    (tmp_path / "activate").write_text("set +e\nexport A=1\nfalse\ntrue\n")
    lines = [f"source '{tmp_path / 'activate'}'", "export B=2"]
    assert set_up(lines, ENV, None)["B"] == "2"
    with pytest.raises(SetupFailed, match="at: false"):
        set_up([lines[0], "false", "export B=2"], ENV, None)
    assert set_up(["set +o pipefail", "false | true", "export B=3"], ENV, None)["B"] == "3"


def test_ten_megabytes_of_output(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        set_up(["head -c 10000000 /dev/zero", "cat <<'EOF'\n$HOME\nEOF"], ENV, None, log)
    assert (tmp_path / "log").stat().st_size == 10_000_000 + len("$HOME\n")


def test_many_variables_and_daemons_do_not_hang(tmp_path: Path) -> None:
    began = time.monotonic()
    with (tmp_path / "log").open("wb") as log:
        left = set_up(["export BIG=$(head -c 100000 /dev/zero | tr '\\0' x)", "sleep 3 &"], ENV, None, log)
    assert len(left["BIG"]) == 100000
    assert time.monotonic() - began < 2.5


def test_secrets_are_not_written_down() -> None:
    with pytest.raises(UsageError, match="secret"):
        check_setup(["export HF_TOKEN='hf_" + "a1B2" * 9 + "'"])
    assert check_setup(["", "module load cuda"]) == ("module load cuda",)
    for line in ("a\0b", "echo \udcff"):
        with pytest.raises(UsageError, match="NUL character, or bytes"):
            check_setup([line])


def job(folder: Path, *setup: str, env: dict[str, str] | None = None) -> JobPlan:
    show = "import json, os; print(json.dumps([os.environ.get('A'), os.environ.get('B'), os.getcwd()]))"
    components = (
        Component(name="main", role="main", argv=(sys.executable, "-c", show)),
        Component(name="first", role="task", argv=("touch", str(folder / "started"))),
    )
    plan = JobPlan(
        atropos_version="0", name="x", components=components, cwd=str(folder), setup=setup, env=env or {}, grace=1
    )
    write_job(plan, folder)
    return plan


@pytest.fixture(autouse=True)
def _same_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())


def test_a_job_runs_in_what_its_set_up_left(tmp_path: Path) -> None:
    plan = job(tmp_path, "echo loading; export A=1", "export B=$GIVEN", env={"GIVEN": "two"})
    assert run_job(plan, tmp_path, LocalPlacer()) == 0
    assert json.loads((tmp_path / "logs/latest/main.log").read_text()) == ["1", "two", str(tmp_path)]
    assert (tmp_path / "logs/latest/setup.log").read_text() == "loading\n"


def test_what_the_lines_start_ends_with_the_job(tmp_path: Path) -> None:
    plan = job(tmp_path, "sleep 60.73 &", "(setsid sleep 60.73 &)", "export A=1")
    assert run_job(plan, tmp_path, LocalPlacer()) == 0
    deadline = time.monotonic() + 10
    while subprocess.run(["pgrep", "-f", "sleep 60.73"], capture_output=True).returncode == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "_ATROPOS_COMPONENT" not in os.environ


def test_nothing_starts_behind_a_line_that_fails(tmp_path: Path) -> None:
    plan = job(tmp_path, "export A=1", "pip_install_nothing --x")
    assert run_job(plan, tmp_path, LocalPlacer()) == 127
    ended = read_record(tmp_path / "exit.json")
    assert ended is not None
    assert ended["reason"] == "the set-up ended with code 127, at: pip_install_nothing --x"
    assert not (tmp_path / "started").exists()
    assert not (tmp_path / "logs/latest/main.log").exists()


def test_a_signal_ends_the_set_up(tmp_path: Path) -> None:
    job(tmp_path, "sleep 60.71")
    words = [sys.executable, "-m", "atropos_cli", "run", str(tmp_path / "job.json")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (tmp_path / "logs/latest/setup.log").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143
    assert not (tmp_path / "started").exists()
    assert subprocess.run(["pgrep", "-f", "sleep 60.71"], capture_output=True).returncode == 1


def test_in_place_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "lines.json").write_text(json.dumps(["export A=5", "cd /"]))
    words = [sys.executable, "-m", "atropos_cli.jobs.setup", str(tmp_path / "lines.json"), "/usr/bin/env"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "A=5" in done.stdout.splitlines()
    (tmp_path / "lines.json").write_text(json.dumps(["(exit 9)"]))
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (9, "")
    assert "atropos: the set-up ended with code 9, at: (exit 9)" in done.stderr
