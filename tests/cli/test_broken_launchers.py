"""Mistakes in a launcher: the error names the launcher and the method, no job is lost, and the others are listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

LAUNCHER = """
from pathlib import Path
from atropos_cli.sdk.launchers import JobStatus, Launcher

class Mine(Launcher):
    name = "mine"

    def __init__(self, config):
        if Path("off").exists() and self.name == "bad":
            raise RuntimeError("off")
        super().__init__(config)

    def render(self, job):
        return "run " + job.run

    def submit(self, job):
        Path("started").touch()
        return "job-" + job.name

    def status(self, job_id):
        return JobStatus(id=job_id, state="running")

    def logs(self, job_id, *, follow=False):
        yield "a line\\n"

    def cancel(self, job_id):
        Path("cancelled-" + job_id).touch()
"""
RUN = ("gen", "arithmetic", "--backend", "scripted", "--backend.replies", "1", "--limit", "1", "--output")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def write(name: str, method: str = "") -> str:
    """A launcher with one method more; the name by which commands find it."""
    Path(f"{name}.py").write_text(LAUNCHER.replace('"mine"', f'"{name}"') + method)
    return f"./{name}.py:Mine"


def submitted(cli: Any, launcher: str, output: str = "run") -> Any:
    return cli("job", "submit", "--no-check", "--on", launcher, "--name", output, "--", *RUN, output)


SUBMIT = [
    ("def submit(self, job): raise ValueError('x')", 7, "launcher 'bad': submit() raised ValueError: x", "bad.py:"),
    ("def submit(self, job): raise SystemExit(3)", 7, "submit() raised SystemExit: 3", "bad.py:"),
    ("def submit(self, job): raise OSError(2, 'no such program')", 7, "submit() raised FileNotFoundError", "bad.py:"),
    ("def submit(self, job): pass", 4, "submit() returned None, not the job's id", "let submit() of"),
    ("def submit(self, job): return ' '", 4, "submit() returned str ' ', not the job's id", "let submit() of"),
    ("async def submit(self, job): return '1'", 4, "submit() returned coroutine submit", "without async"),
    ("def submit(self): return '1'", 7, "submit() raised TypeError", "def submit(self, job): ..."),
    ("def render(self, job): pass", 4, "render() returned None, not str", "let render() of"),
    ("def render(self, job): return job.nothing", 7, "render() raised AttributeError", "bad.py:"),
    ("def adapt(self, plan, folder): pass", 4, "adapt() returned None, not JobPlan", "let adapt() of"),
    ("def call(self, job): return 'qsub x'", 4, "call() returned str 'qsub x', not list", "let call() of"),
    ("name = ''", 4, "class Mine has no name", "add name = "),
    ("def __init__(self): pass", 4, "__init__(self) takes no options", "def __init__(self, config)"),
    ("def __init__(self, config): raise RuntimeError('no cluster')", 7, "__init__ raised RuntimeError: no", "plugins"),
]


@pytest.mark.parametrize(("method", "code", "message", "hint"), SUBMIT)
def test_a_mistake_at_submission_is_named(cli: Any, method: str, code: int, message: str, hint: str) -> None:
    done = submitted(cli, write("bad", f"\n    {method}\n"))
    assert done.code == code, done.stderr
    assert message in done.stderr
    assert hint in done.stderr.partition("hint: ")[2]
    assert not Path("started").exists()
    assert not Path("run/submitted.json").exists()


def test_an_abstract_method_is_shown_as_it_is_written(cli: Any) -> None:
    Path("bad.py").write_text(LAUNCHER.replace("def cancel", "def stop"))
    done = submitted(cli, "./bad.py:Mine")
    assert done.code == 4
    assert "class Mine does not define cancel()" in done.stderr
    assert "hint: def cancel(self, job_id): ..." in done.stderr


LATER = [
    ("def status(self, job_id): return {'state': 'running'}", "status() returned dict"),
    ("def status(self, job_id): return 'running'", "status() returned str 'running', not JobStatus"),
    ("def status(self, job_id): raise RuntimeError('gone')", "status() raised RuntimeError: gone"),
    ("def status(self, job_id): return JobStatus(id=job_id, state='done')", "status() raised ValidationError"),
]


@pytest.mark.parametrize(("method", "message"), LATER)
def test_a_job_whose_launcher_does_not_answer_is_unknown_and_the_others_are_listed(
    cli: Any, method: str, message: str
) -> None:
    assert submitted(cli, write("good"), "one").code == 0
    assert submitted(cli, write("bad", f"\n    {method}\n"), "two").code == 0
    Path("two/logs/1").mkdir(parents=True)  # it has begun: without an answer it is not lost
    done = cli("job", "status", "two", "--json")
    assert done.json["state"] == "unknown"
    assert message in done.json["reason"]
    listed = {item["name"]: item["state"] for item in cli("job", "list", "--json").json}
    assert listed == {"one": "running", "two": "unknown"}
    Path("off").touch()
    broken = cli("job", "list", "--json")
    assert [item["name"] for item in broken.json] == ["one"]
    assert "its jobs are left out" in broken.stderr


@pytest.mark.parametrize(
    ("method", "code", "message"),
    [
        ("def logs(self, job_id, *, follow=False): pass", 4, "logs() returned None"),
        ("def logs(self, job_id, *, follow=False): return 'text'", 4, "logs() returned str 'text'"),
        ("def logs(self, job_id, *, follow=False): yield b'x'", 4, "logs() returned bytes"),
        ("def logs(self, job_id, *, follow=False): yield 1 / 0", 7, "logs() raised ZeroDivisionError"),
        ("def logs(self, job_id): yield 'x'", 7, "logs() raised TypeError"),
    ],
)
def test_logs(cli: Any, method: str, code: int, message: str) -> None:
    assert submitted(cli, write("bad", f"\n    {method}\n")).code == 0
    done = cli("job", "logs", "run", "job")
    assert done.code == code
    assert message in done.stderr
    assert "hint: " in done.stderr


def test_lines_of_a_log_end_once(cli: Any) -> None:
    assert submitted(cli, write("good")).code == 0
    assert cli("job", "logs", "run", "job").stdout == "a line\n"


def test_jobs_are_cancelled_though_one_cannot_be(cli: Any) -> None:
    assert submitted(cli, write("good"), "one").code == 0
    bad = write("bad", "\n    def cancel(self, job_id): raise ProcessLookupError('gone')\n")
    assert submitted(cli, bad, "two").code == 0
    done = cli("job", "cancel", "two", "one")
    assert done.code == 7
    assert "cancel() raised ProcessLookupError: gone" in done.stderr
    assert Path("cancelled-job-one").exists()
    Path("cancelled-job-one").unlink()
    assert cli("job", "cancel", "one", "no-such-job").code == 2
    assert not Path("cancelled-job-one").exists(), "a misspelt name stops the command before it cancels anything"


def test_an_unknown_launcher_has_no_list_of_jobs(cli: Any) -> None:
    done = cli("job", "list", "--on", "nope")
    assert (done.code, done.stdout) == (4, "")
    assert "there is no launcher 'nope'" in done.stderr


def test_a_run_in_shards_outlives_a_launcher_that_does_not_answer_for_a_moment(cli: Any) -> None:
    launcher = """
    capabilities = __import__("atropos_cli.sdk.launchers", fromlist=["x"]).LauncherCapabilities(shards=True)
    asked = 0

    def submit(self, job):
        import subprocess
        for folder, argv in job.parts():
            subprocess.run(argv, cwd=job.cwd, check=True, capture_output=True)
        return "7"

    def status(self, job_id):
        self.asked += 1
        if self.asked < 3:
            raise OSError("the scheduler is busy")
        return JobStatus(id=job_id, state="finished")

    def logs(self, job_id, *, follow=False):
        yield 1 / 0
"""
    done = cli(*RUN, "run", "--on", write("bad", launcher), "--shards", "1")
    assert done.code == 0, done.stderr
    assert "its lines are not shown: launcher 'bad': logs() raised ZeroDivisionError" in done.stderr
    assert json.loads(Path("run/summary.json").read_text())["groups_done"] == 1
