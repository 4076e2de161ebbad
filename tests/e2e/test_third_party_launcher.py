"""A launcher that somebody else wrote, in fewer than 60 lines, runs shards, pipelines and trainings."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from needed import need

LAUNCHER = """
import os, signal, subprocess, time
from pathlib import Path
from atropos_cli.sdk.launchers import JobSpec, JobStatus, Launcher, LauncherCapabilities, LaunchError

SCRIPT = 'trap : TERM; nohup "$@" >>"$0/nohup.out" 2>&1 & wait $!; wait $!; echo $? >"$0/tmp"; mv "$0/tmp" "$0/code"'

class Plain(Launcher):
    name = "plain"
    capabilities = LauncherCapabilities(shards=True)

    def render(self, job):
        return "".join(f"{argv} in {folder}\\n" for folder, argv in job.parts())

    def submit(self, job):
        if job.after:
            raise LaunchError("these jobs cannot wait for each other")
        for folder, argv in job.parts():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "code").unlink(missing_ok=True)
            child = subprocess.Popen(
                ["sh", "-c", SCRIPT, str(folder), *argv], cwd=job.cwd, env={**os.environ, **job.env},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )
            (folder / "pid").write_text(str(child.pid))
        return job.run

    def _parts(self, job_id):
        return [Path(job_id)] if (Path(job_id) / "pid").exists() else sorted(Path(job_id).glob("shards/*"))

    def status(self, job_id):
        codes = [int((part / "code").read_text()) for part in self._parts(job_id) if (part / "code").exists()]
        if len(codes) < len(self._parts(job_id)):
            return JobStatus(id=job_id, state="running")
        worst = max(codes, default=0)
        stopped = "cancelled" if (Path(job_id) / "stopped").exists() else "failed"
        return JobStatus(id=job_id, state=stopped if worst else "finished", exit_code=worst)

    def logs(self, job_id, *, follow=False):
        while follow and self.status(job_id).state == "running":
            time.sleep(0.1)
        for part in self._parts(job_id):
            yield from (part / "nohup.out").read_text().splitlines()

    def cancel(self, job_id):
        (Path(job_id) / "stopped").touch()
        for part in self._parts(job_id):
            if not (part / "code").exists():
                os.killpg(int((part / "pid").read_text()), signal.SIGTERM)
        while self.status(job_id).state == "running":
            time.sleep(0.1)
"""
PLUGIN = """
from atropos_cli.sdk import ComponentSpec, hookimpl

@hookimpl
def atropos_register_launchers():
    return [ComponentSpec("launcher", "plain", "plain_launcher_x:Plain", summary="Plain processes.")]
"""
GEN = (
    "gen",
    "arithmetic",
    "--backend",
    "scripted",
    "--backend.replies",
    "Answer: 7",
    "--limit",
    "6",
    "--group-size",
    "2",
)
FLOW = """
[steps.gen]
command = [
    "gen", "arithmetic", "--backend", "scripted", "--backend.replies", "Answer: 7", "--limit", "3", "-o", "{output}",
]

[steps.kept]
command = ["filter", "{steps.gen.output}", "-o", "{output}", "--min-reward", "0"]
"""


@pytest.fixture(autouse=True)
def plain(install: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len([line for line in LAUNCHER.splitlines() if line]) <= 60
    files = {"plain_plugin_x.py": PLUGIN, "plain_launcher_x.py": LAUNCHER}
    install("plain-launcher", files, {"atropos": {"plain": "plain_plugin_x"}})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_plugins_check_imports_it(cli: Any) -> None:
    done = cli("plugins", "check", "plain")
    assert done.code == 0, done.stderr
    assert "plain" in done.stdout


def test_shards(cli: Any) -> None:
    done = cli(*GEN, "--on", "plain", "--shards", "2", "--output", "run", "--json")
    assert done.code == 0, done.stderr
    assert done.json["groups_done"] == 6
    assert len(list(Path("run/shards").iterdir())) == 2


def test_a_job_is_submitted_followed_and_found_again(cli: Any) -> None:
    done = cli("job", "submit", "--on", "plain", "--wait", "--json", "--", *GEN, "--output", "run")
    assert done.code == 0, done.stderr
    assert done.json["state"] == "finished"
    assert json.loads(Path("run/summary.json").read_text())["groups_done"] == 6
    assert cli("job", "status", "run").code == 0
    assert "6 of 6 groups" in cli("job", "logs", "run").stdout
    assert "exit code 0" in cli("job", "logs", "run", "job").stdout
    assert [item["state"] for item in cli("job", "list", "--json").json] == ["finished"]
    failed = cli("job", "submit", "--on", "plain", "--no-check", "--wait", "--", *GEN, "--limit", "0", "--output", "no")
    assert failed.code not in (0, 7)


def test_a_launcher_of_a_file_is_found_again_from_anywhere(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.py").write_text(LAUNCHER)
    Path("atropos.toml").write_text("[job]\non = './mine.py:Plain'\nname = 'told'\n")
    done = cli("job", "submit", "--wait", "--json", "--", *GEN, "--output", "run")
    assert (done.code, done.json["name"]) == (0, "told"), done.stderr
    Path("other").mkdir()
    monkeypatch.chdir("other")
    assert cli("job", "status", "told", "--json").json["state"] == "finished"
    assert len(cli("job", "list", "--on", "../mine.py:Plain", "--json").json) == 1


def test_any_launcher_has_profiles(cli: Any) -> None:
    Path("mine.py").write_text(
        LAUNCHER + "\nfrom atropos_cli.sdk import Config\nclass Options(Config):\n    depth: int = 1\n"
        "Plain.Config = Options\n"
    )
    Path("atropos.toml").write_text("[job.profiles.deep]\ndepth = 3\n[job.profiles.wrong]\ndept = 3\n[job]\nnods = 1\n")
    words = ("job", "submit", "--on", "./mine.py:Plain", "--dry-run", "--profile")
    misspelt = cli(*words, "deep", "--", *GEN)
    assert (misspelt.code, "unknown key 'job.nods'" in misspelt.stderr, "job.nodes" in misspelt.stderr) == (
        3,
        True,
        True,
    )
    Path("atropos.toml").write_text("[job.profiles.deep]\ndepth = 3\n[job.profiles.wrong]\ndept = 3\n")
    assert cli(*words, "deep", "--", *GEN).code == 0
    wrong = cli(*words, "wrong", "--", *GEN)
    assert (wrong.code, "did you mean depth?" in wrong.stderr) == (3, True), wrong.stderr
    assert "did you mean 'deep'?" in cli(*words, "dep", "--", *GEN).stderr


def test_a_job_is_cancelled(cli: Any) -> None:
    slow = ("--backend.delay-s", "60", "--drain", "1", "--output", "slow")
    done = cli("job", "submit", "--on", "plain", "--", *GEN, *slow)
    assert done.code == 0, done.stderr
    until(lambda: Path("slow/log.jsonl").exists())
    assert cli("job", "cancel", "slow").code == 0
    assert cli("job", "status", "slow", "--json").json["state"] == "cancelled"


def test_what_it_cannot_do_is_refused(cli: Any) -> None:
    for words in (("--nodes", "2"), ("--array", "2"), ("--serve", "vllm", "--model", "m/m")):
        done = cli("job", "submit", "--on", "plain", *words, "--", "gen", "arithmetic", "--model", "m/m")
        assert (done.code, "launcher 'plain'" in done.stderr) == (2, True), done.stderr


def test_a_pipeline(cli: Any) -> None:
    Path("flow.toml").write_text(FLOW)
    done = cli("pipeline", "run", "flow.toml", "-o", "out", "--on", "plain")
    assert done.code == 0, done.stderr

    def states() -> list[str]:
        if not Path("out/pipeline.json").exists():
            return []
        return [step["state"] for step in cli("pipeline", "status", "out", "--json").json["steps"]]

    until(lambda: states() == ["done", "done"])
    assert cli("job", "status", "out.job").code == 0


@pytest.mark.slow
def test_a_training(cli: Any, tmp_path: Path) -> None:
    need("torch", "trl", "atropos_local")
    from atropos_authoring.trainers import tiny_model

    Path("digits.py").write_text("from atropos_authoring.digits import Digits\n")
    words = ("train", "grpo", "--env", "./digits.py:Digits", "--model", str(tiny_model(tmp_path / "model")))
    sizes = ("--max-tokens", "8", "--group-size", "4", "--prompts-per-step", "2", "--steps", "2")
    done = cli(
        *("job", "submit", "--on", "plain", "--env", "OMP_NUM_THREADS=1", "--wait", "--", *words, *sizes),
        *("--backend.chat-template", "plain", "--output", "run"),
    )
    assert done.code == 0, done.stderr
    assert json.loads(Path("run/train.json").read_text())["state"] == "finished"
