"""`atropos tmux` against a real tmux: exit codes, logs, names, environment, and that nothing survives a stop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from atropos_tmux.client import Tmux, job_environment, session_name
from atropos_tmux.launcher import TmuxConfig, TmuxLauncher

from atropos_cli.errors import LaunchError
from atropos_cli.ports.launcher import JobSpec

from .tmux_support import SOCKET, command_lines, on_a_terminal, processes_with, tmux_server, wait_for

GEN = ("gen", "arithmetic", "--backend", "scripted", "--backend.replies", "Answer: 7", "--limit", "3")


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tmux_server(monkeypatch) as folder:
        yield folder


@pytest.fixture
def command(install: Callable[..., Path]) -> Callable[[str], None]:
    """Give the program a command `probe` whose body is the code."""

    def make(code: str) -> None:
        body = textwrap.indent(textwrap.dedent(code), "    ")
        source = f"import json, os, signal, subprocess, sys, time\n\n\ndef probe(words: list[str]) -> int:\n{body}\n"
        install("probe-dist", {"probe_module.py": source}, {"atropos.commands": {"probe": "probe_module:probe"}})

    return make


@pytest.fixture
def tmux(cli: Callable[..., Any]) -> Callable[..., Any]:
    return lambda verb, *args: cli("tmux", verb, "--socket", SOCKET, *args)


def launcher(grace: float = 60.0) -> TmuxLauncher:
    return TmuxLauncher(TmuxConfig(socket=SOCKET, grace=grace))


def test_a_command_runs_with_its_log_and_exit_code(tmux: Callable[..., Any], tmp_path: Path) -> None:
    started = tmux("run", "--name", "play", "--json", "--", *GEN, "--output", str(tmp_path / "a run"))
    assert started.code == 0
    assert started.json["id"] == "play"
    followed = tmux("logs", "-f", "play")
    assert "3 tasks" in followed.stdout
    assert "finished: 3 of 3 groups" in followed.stdout
    status = tmux("status", "play", "--json")
    assert (status.code, status.json["state"], status.json["exit_code"]) == (0, "finished", 0)
    assert len((tmp_path / "a run" / "groups.jsonl").read_text().splitlines()) == 3
    assert [job["id"] for job in tmux("list", "--json").json] == ["play"]


def test_the_command_begins_where_its_options_begin(tmux: Callable[..., Any]) -> None:
    started = tmux("run", "--name", "help", "atropos", "env", "list", "--json")
    assert started.code == 0, started.stderr
    assert '"arithmetic"' in tmux("logs", "-f", "help").stdout


def test_a_failed_command_is_told_by_code_and_log(tmux: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    assert tmux("run", "--name", "bad", "--", *GEN, "--output", str(tmp_path / "full")).code == 0
    tmux("logs", "-f", "bad")
    status = tmux("status", "bad")
    assert status.code == 1
    assert "failed" in status.stdout
    assert "exit_code: 6" in status.stdout
    assert "is not empty and holds no run" in status.stderr


def test_death_by_a_signal_is_an_exit_code_too(command: Callable[[str], None], tmux: Callable[..., Any]) -> None:
    command("print('early', flush=True); os.kill(os.getpid(), signal.SIGSEGV)")
    tmux("run", "--name", "crash", "probe", "x")
    assert tmux("logs", "-f", "crash").stdout == "early\n"
    status = tmux("status", "crash", "--json").json
    assert (status["state"], status["exit_code"], status["reason"]) == ("failed", 139, "ended by SIGSEGV")


def test_output_is_kept_from_the_first_byte_and_as_it_is(
    command: Callable[[str], None], tmux: Callable[..., Any]
) -> None:
    command("print('x' * 1000 + ' ünïcode'); print('err', file=sys.stderr); print('no newline', end='')")
    tmux("run", "--name", "out", "probe", "x")
    folder = Path(tmux("status", "out", "--json").json["folder"])
    tmux("logs", "-f", "out")
    written = (folder / "log.txt").read_text().splitlines()
    assert sorted(written) == ["err", "no newline", "x" * 1000 + " ünïcode"]  # not wrapped, no \r, nothing lost


def test_arguments_arrive_unchanged(command: Callable[[str], None], tmux: Callable[..., Any]) -> None:
    command("print(json.dumps(words))")
    odd = ["two words", "$HOME", "`id`", "it's", '"q"', "a\nb", "ünï ☃", "end;", ";", "*", "", "\\;", "#{pid}", "{run}"]
    tmux("run", "--name", "odd", "probe", *odd)
    assert json.loads(tmux("logs", "-f", "odd").stdout) == odd


def test_names_are_exact(tmux: Callable[..., Any], command: Callable[[str], None]) -> None:
    command("time.sleep(60)")
    assert tmux("run", "--name", "job1x", "probe", "x").code == 0
    assert tmux("status", "job1").code == 7  # not the session whose name begins so
    again = tmux("run", "--name", "job1x", "probe", "x")
    assert again.code == 7
    assert "running already" in again.stderr
    assert tmux("stop", "job1x", "--grace", "0").code == 0
    for name in ("a.b", "a:b", "-x", "é", ""):
        assert re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]*", session_name(name))
    assert session_name("a.b") != session_name("a:b")


def test_an_ended_job_gives_up_its_name(tmux: Callable[..., Any]) -> None:
    for _ in range(2):
        assert tmux("run", "--name", "again", "env", "list").code == 0
        assert "arithmetic" in tmux("logs", "-f", "again").stdout
    unnamed = [tmux("run", "--json", "env", "list").json["id"] for _ in range(2)]
    assert unnamed == ["env-list", "env-list-2"]
    for name in unnamed:
        tmux("logs", "-f", name)
    assert tmux("list", "--forget", "--json").json == []
    wait_for(lambda: launcher().tmux.call("list-sessions").returncode, "the server's end")


def test_stop_ends_everything_and_keeps_the_code(command: Callable[[str], None], tmux: Callable[..., Any]) -> None:
    """A child that ignores SIGTERM, one in a session of its own, and one that was orphaned: none survives."""
    command(
        """
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN); time.sleep(300)"
        subprocess.Popen([sys.executable, "-c", code])
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        subprocess.run(["/bin/sh", "-c", "sleep 300 & sleep 300 &"], start_new_session=True, stdout=subprocess.DEVNULL)
        print("up", flush=True)
        try:
            time.sleep(300)
        finally:
            print("never printed after SIGTERM")
        """  # noqa: E501
    )
    tmux("run", "--name", "tree", "--env", "MARK=tree-mark-1", "probe", "x")
    log = Path(tmux("status", "tree", "--json").json["log"])
    wait_for(lambda: "up" in log.read_text(), "the job")
    wait_for(lambda: len(processes_with("MARK=tree-mark-1")) >= 5, "its processes")
    stopped = tmux("stop", "tree", "--json")
    assert stopped.json["state"] == "cancelled"
    assert stopped.json["exit_code"] == 143
    assert processes_with("MARK=tree-mark-1") == []


def test_a_job_that_will_not_stop_is_killed_after_its_grace(
    command: Callable[[str], None], tmux: Callable[..., Any]
) -> None:
    command("signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(300)")
    tmux("run", "--name", "deaf", "--env", "MARK=deaf-mark", "probe", "x")
    log = Path(tmux("status", "deaf", "--json").json["log"])
    wait_for(lambda: "up" in log.read_text(), "the job")
    assert tmux("stop", "deaf", "--grace", "0.3", "--json").json["exit_code"] == 137
    assert processes_with("MARK=deaf-mark") == []


def test_stop_lets_a_run_save_its_groups(tmux: Callable[..., Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    slow = [*GEN[:-1], "1000", "--backend.delay-s", "0.1", "--workers", "2", "--drain", "0.5", "--output", str(run)]
    tmux("run", "--name", "slow", "--", *slow)
    wait_for(lambda: (run / "groups.jsonl").exists() and (run / "groups.jsonl").stat().st_size, "a group")
    stopped = tmux("stop", "slow", "--json").json
    assert (stopped["state"], stopped["exit_code"]) == ("cancelled", 130)
    assert json.loads((run / "summary.json").read_text())["state"] == "interrupted"


@pytest.mark.parametrize("how", ["kill-session", "kill-server"])
def test_a_killed_session_stops_the_job(command: Callable[[str], None], tmux: Callable[..., Any], how: str) -> None:
    command("print('up', flush=True); time.sleep(300)")
    tmux("run", "--name", "hup", "--env", "MARK=hup-mark", "probe", "x")
    wait_for(lambda: processes_with("MARK=hup-mark"), "the job")
    launcher().tmux.call(how, *(["-t", "=hup"] if how == "kill-session" else []))
    wait_for(lambda: not processes_with("MARK=hup-mark"), "its end")
    wait_for(lambda: tmux("status", "hup", "--json").json["state"] != "running", "its record")
    assert tmux("status", "hup", "--json").json["exit_code"] == 143


def test_kill_minus_nine_of_the_pane_program_ends_the_command(
    command: Callable[[str], None], tmux: Callable[..., Any]
) -> None:
    command("print('up', flush=True); time.sleep(300)")
    tmux("run", "--name", "nine", "--env", "MARK=nine-mark", "probe", "x")
    folder = Path(tmux("status", "nine", "--json").json["folder"])
    wait_for(lambda: processes_with("MARK=nine-mark"), "the job")
    os.kill(json.loads((folder / "running.json").read_text())["pid"], signal.SIGKILL)
    wait_for(lambda: not processes_with("MARK=nine-mark"), "its end")
    status = tmux("status", "nine", "--json")
    assert (status.code, status.json["state"]) == (1, "failed")
    assert "without a trace" in status.json["reason"]


def test_field_case_g16_variables_reach_the_job(
    field_cases: dict[str, dict[str, Any]],
    command: Callable[[str], None],
    tmux: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tmux server was started earlier, without the variables."""
    command("print(json.dumps({name: os.environ.get(name) for name in words}))")
    subprocess.run([*Tmux(SOCKET).command, "new-session", "-d", "-s", "older"], check=True)
    wanted = dict(field_cases["G16"]["input"]["env"])
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
    odd = 'it\'s "quoted" $HOME, é; and\nmore;'
    monkeypatch.setenv("ODD", odd)
    monkeypatch.setenv("SLURM_CPU_BIND", "mask_cpu:0x1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    names = [*wanted, "ODD", "SLURM_CPU_BIND", "SLURM_CONF", "GIVEN", "TMUX_PANE"]
    assert tmux("run", "--name", "env", "--env", "GIVEN=a=b", "probe", *names).code == 0
    seen = json.loads(tmux("logs", "-f", "env").stdout)
    assert {name: seen[name] for name in wanted} == wanted
    assert (seen["ODD"], seen["GIVEN"]) == (odd, "a=b")
    assert (seen["SLURM_CPU_BIND"], seen["SLURM_CONF"], seen["TMUX_PANE"]) == (None, "/etc/slurm/slurm.conf", None)


def test_secrets_are_neither_on_command_lines_nor_left_on_disk(
    command: Callable[[str], None], tmux: Callable[..., Any], server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("print('up', flush=True); time.sleep(300)")
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret-71")
    monkeypatch.setenv("TOKEN_71", "very-secret-72")
    tmux("run", "--name", "secret", "--env", "TOKEN_71", "probe", "x")
    wait_for(lambda: processes_with("very-secret-71"), "the job")
    assert "very-secret" not in command_lines()
    files = [path for path in server.rglob("*") if path.is_file()]
    assert any(path.name == "start.json" for path in files)
    assert not [path for path in files if b"very-secret" in path.read_bytes()]
    assert "very-secret" not in launcher().tmux.call("show-environment", "-g").stdout
    shown = tmux("run", "--name", "other", "--env", "TOKEN_71", "--dry-run", "--json", "probe", "x")
    assert "very-secret" not in shown.stdout
    assert shown.json["env"] == ["TOKEN_71"]
    tmux("stop", "secret", "--grace", "0")


def test_a_job_that_cannot_begin_is_an_error_at_once(server: Path, tmp_path: Path) -> None:
    job = JobSpec(name="x", run=str(tmp_path), command=("env", "list"), cwd=str(tmp_path / "gone"))
    with pytest.raises(LaunchError, match="working directory"):
        launcher().submit(job)
    assert launcher().jobs() == []


def test_the_launcher_carries_out_the_plan_of_a_folder(cli: Callable[..., Any], tmp_path: Path) -> None:
    """Without a command, a job is `atropos run FOLDER`."""
    run = tmp_path / "planned"
    assert cli(*GEN, "--output", str(run)).code == 0
    (run / "groups.jsonl").unlink()
    (run / "groups.jsonl.idx").unlink(missing_ok=True)
    found = launcher()
    job = found.submit(JobSpec(name="planned", run=str(run)))
    lines = list(found.logs(job, follow=True))
    assert any("finished: 3 of 3" in line for line in lines)
    assert found.status(job).exit_code == 0
    assert len((run / "groups.jsonl").read_text().splitlines()) == 3


def test_what_tmux_cannot_do_is_refused(tmp_path: Path) -> None:
    for wish in ({"after": ("1",)}, {"resources": {"array": 2}}):
        with pytest.raises(LaunchError, match="neither wait"):
            launcher().submit(JobSpec.model_validate({"name": "x", "run": str(tmp_path), **wish}))


def test_rendering_is_pure_and_holds_no_text_of_the_users(tmp_path: Path) -> None:
    job = JobSpec(name="a'b", run=str(tmp_path / "it's"), command=("env", "list", "$(id)"))
    script = launcher().render(job)
    assert script == launcher().render(job)
    assert "$(id)" not in script
    assert subprocess.run(["/bin/sh", "-n"], input=script, text=True).returncode == 0
    assert not (tmp_path / "it's").exists()


def test_attach_needs_a_terminal_and_a_known_job(tmux: Callable[..., Any]) -> None:
    assert tmux("attach", "x").code == 2
    assert tmux("run", "--attach", "env", "list").code == 2


def test_wrong_commands(tmux: Callable[..., Any]) -> None:
    typo = tmux("run", "scoer", "x")
    assert (typo.code, "did you mean score" in typo.stderr) == (2, True)
    assert tmux("run", "tmux", "list").code == 2
    assert tmux("run", "--env", "1=2", "env", "list").code == 2
    unset = tmux("run", "--env", "NOT_SET_71", "env", "list")
    assert (unset.code, "NOT_SET_71" in unset.stderr) == (2, True)
    assert tmux("logs", "nope").code == 7


def test_without_tmux(tmux: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = tmux("run", "env", "list")
    assert result.code == 7
    assert "tmux is not installed" in result.stderr


def test_what_a_job_inherits() -> None:
    kept = job_environment({"SLURM_JOB_ID": "1", "SBATCH_X": "1", "PMI_RANK": "0", "RANK": "1", "HF_HOME": "/d"})
    assert kept == {"HF_HOME": "/d"}


def test_attach_and_detach(command: Callable[[str], None], tmux: Callable[..., Any]) -> None:
    command("print('from the job', flush=True); time.sleep(300)")
    assert tmux("run", "--name", "seen", "--env", "MARK=seen-mark", "probe", "x").code == 0
    shown, code = on_a_terminal(["tmux", "attach", "--socket", SOCKET, "seen"], "from the job", b"\x02d")
    assert code == 0
    assert "detached" in shown
    assert tmux("status", "seen", "--json").json["state"] == "running"
    # Ctrl-C in the session reaches the job, and the job only
    on_a_terminal(["tmux", "attach", "--socket", SOCKET, "seen"], "from the job", b"\x03", b"\x02d")
    wait_for(lambda: tmux("status", "seen", "--json").json["state"] == "cancelled", "the end by Ctrl-C")
    assert tmux("status", "seen", "--json").json["exit_code"] == 130


def test_run_and_attach_at_once(command: Callable[[str], None], tmux: Callable[..., Any]) -> None:
    command("print('at once', flush=True); time.sleep(300)")
    args = ["tmux", "run", "--socket", SOCKET, "--name", "now", "--attach", "probe", "x"]
    shown, code = on_a_terminal(args, "at once", b"\x02d")
    assert (code, "detached" in shown) == (0, True)
    assert tmux("stop", "now", "--grace", "0").code == 0
