"""`atropos pipeline`: carried out here, gone on with, and what is never replaced without being told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FLOW = """
[steps.gen]
command = [
    "gen", "arithmetic", "--limit", "4", "--group-size", "4", "--output", "{output}",
    "--backend", "scripted", "--backend.mode", "random", "--backend.token-ids",
    "--backend.replies", "Answer: 7", "--backend.replies", "Answer: 12", "--backend.replies", "Answer: 30",
]

[steps.scored]
command = ["score", "{steps.gen.output}", "-o", "{output}", "--reward", "length=1"]

[steps.rows]
command = ["sft-gen", "{steps.scored.output}", "-o", "{output}"]
output = "sft.jsonl"
"""


@pytest.fixture
def flow() -> Path:
    path = Path("flow.toml")
    path.write_text(FLOW)
    return path


def changed(flow: Path, old: str, new: str) -> None:
    text = flow.read_text()
    assert old in text
    flow.write_text(text.replace(old, new))


def records(folder: str = "out") -> dict[str, dict[str, Any]]:
    found = (json.loads(path.read_text()) for path in Path(folder).glob("steps/*/record.json"))
    return {record["step"]: record for record in found}


def test_all_steps_are_carried_out_in_order(cli: Callable[..., Any], flow: Path) -> None:
    result = cli("pipeline", "run", "flow.toml", "-o", "out", "--json")
    assert result.code == 0, result.stderr
    assert [step["state"] for step in result.json["steps"]] == ["done"] * 3
    assert len(Path("out/gen/groups.jsonl").read_text().splitlines()) == 4
    assert json.loads(Path("out/sft.jsonl").read_text().splitlines()[0])["messages"]
    assert "finished: 4 of 4 groups" in Path("out/steps/gen/log.txt").read_text()
    assert cli("pipeline", "status", "out").code == 0


def test_dry_run_checks_and_writes_nothing(cli: Callable[..., Any], flow: Path) -> None:
    result = cli("pipeline", "run", "flow.toml", "-o", "out", "--dry-run", "--json")
    assert [(step["name"], step["after"]) for step in result.json["steps"]] == [
        ("gen", []),
        ("scored", ["gen"]),
        ("rows", ["scored"]),
    ]
    assert not Path("out").exists()
    text = cli("pipeline", "run", "flow.toml", "--dry-run").stdout
    assert "atropos gen arithmetic" in text
    assert not Path("runs").exists()


def test_yaml_is_the_same(cli: Callable[..., Any], flow: Path) -> None:
    import tomllib

    Path("flow.yaml").write_text(json.dumps(tomllib.loads(FLOW)))  # JSON is YAML
    wanted = cli("pipeline", "run", "flow.toml", "-o", "out", "--dry-run", "--json").json
    assert cli("pipeline", "run", "flow.yaml", "-o", "out", "--dry-run", "--json").json["steps"] == wanted["steps"]


def test_resume_skips_what_is_done_and_goes_on_after_a_failure(cli: Callable[..., Any], flow: Path) -> None:
    changed(flow, '"length=1"', '"no_such_reward=1"')
    failed = cli("pipeline", "run", "flow.toml", "-o", "out")
    assert failed.code == records()["scored"]["exit_code"] == 4
    assert "scored: failed" in failed.stderr
    assert "rows" not in records()
    first = records()["gen"]["id"]
    again = cli("pipeline", "run", "flow.toml", "-o", "out")
    assert (again.code, "--resume" in again.stderr) == (6, True)
    changed(flow, '"no_such_reward=1"', '"length=1"')
    status = cli("pipeline", "status", "out")
    assert status.code == 1
    went_on = cli("pipeline", "run", "flow.toml", "-o", "out", "--resume")
    assert went_on.code == 0, went_on.stderr
    assert "gen: done already" in went_on.stderr
    assert records()["gen"]["id"] == first
    assert {record["state"] for record in records().values()} == {"done"}


def test_a_finished_output_is_replaced_only_when_told(cli: Callable[..., Any], flow: Path) -> None:
    assert cli("pipeline", "run", "flow.toml", "-o", "out").code == 0
    before = Path("out/gen/groups.jsonl").read_text()
    changed(flow, '"--limit", "4"', '"--limit", "5"')
    refused = cli("pipeline", "run", "flow.toml", "-o", "out", "--resume")
    assert refused.code == 6
    assert "hint: replace them with --redo gen\n" in refused.stderr
    assert Path("out/gen/groups.jsonl").read_text() == before
    redone = cli("pipeline", "run", "flow.toml", "-o", "out", "--redo", "gen")
    assert redone.code == 0, redone.stderr
    assert len(Path("out/gen/groups.jsonl").read_text().splitlines()) == 5
    assert len(Path("out/scored.jsonl").read_text().splitlines()) == 5  # what follows was redone too
    only = cli("pipeline", "run", "flow.toml", "-o", "out", "--redo", "rows")
    assert (only.code, "gen:" in only.stderr) == (0, False)


def test_an_output_that_is_gone_is_made_again(cli: Callable[..., Any], flow: Path) -> None:
    assert cli("pipeline", "run", "flow.toml", "-o", "out").code == 0
    Path("out/sft.jsonl").unlink()
    assert cli("pipeline", "run", "flow.toml", "-o", "out", "--resume").code == 0
    assert Path("out/sft.jsonl").exists()
    shutil.rmtree("out/gen")  # what follows was made of it
    refused = cli("pipeline", "run", "flow.toml", "-o", "out", "--resume")
    assert refused.code == 6
    assert "--redo scored" in refused.stderr


def test_a_changed_input_makes_a_step_outdated(cli: Callable[..., Any], flow: Path) -> None:
    Path("notes.txt").write_text("one")
    changed(flow, 'output = "sft.jsonl"', 'output = "sft.jsonl"\ninputs = ["notes.txt"]')
    assert cli("pipeline", "run", "flow.toml", "-o", "out").code == 0
    assert cli("pipeline", "run", "flow.toml", "-o", "out", "--resume").code == 0
    Path("notes.txt").write_text("two")
    refused = cli("pipeline", "run", "flow.toml", "-o", "out", "--resume")
    assert (refused.code, "notes.txt has changed since" in refused.stderr) == (6, True)
    Path("notes.txt").unlink()
    missing = cli("pipeline", "run", "flow.toml", "-o", "new")
    assert missing.code == 3
    assert "steps.rows.inputs: there is no file" in missing.stderr
    assert not Path("new").exists()


def test_every_mistake_of_a_file_is_told_with_its_line(cli: Callable[..., Any]) -> None:
    Path("bad.toml").write_text(
        'nmae = "x"\n[steps.a]\ncommand = ["gen"]\noutptu = "x"\n[steps.b]\ncommand = "filter"\n'
    )
    result = cli("pipeline", "run", "bad.toml")
    assert result.code == 3
    assert "bad.toml:1: nmae: unknown key (did you mean name?)" in result.stderr
    assert "bad.toml:4: steps.a.outptu: unknown key (did you mean output?)" in result.stderr
    assert "bad.toml:6: steps.b.command: expected a list" in result.stderr
    Path("circle.yaml").write_text(
        "steps:\n  a: {command: [gen, '{steps.b.output}']}\n  b: {command: [gen, '{steps.a.output}']}\n"
    )
    circle = cli("pipeline", "run", "circle.yaml")
    assert (circle.code, "circle.yaml:2: " in circle.stderr, "a -> b -> a" in circle.stderr) == (3, True, True)
    assert cli("pipeline", "run", "nothing.toml").code == 3


def test_options_of_all_steps_are_checked_before_the_first_runs(cli: Callable[..., Any], flow: Path) -> None:
    changed(flow, '"--reward"', '"--rewrad"')
    changed(flow, '"--group-size"', '"--group-sise"')
    result = cli("pipeline", "run", "flow.toml", "-o", "out")
    assert result.code == 2
    assert "gen: no such option: --group-sise" in result.stderr
    assert "scored: no such option: --rewrad" in result.stderr
    assert not Path("out").exists()


@pytest.mark.parametrize("command", ['"tmux", "list"', '"pipeline", "run"', '"view"', '"--help"'])
def test_some_commands_are_no_steps(cli: Callable[..., Any], command: str) -> None:
    Path("flow.toml").write_text(f"[steps.a]\ncommand = [{command}]\n")
    assert cli("pipeline", "run", "flow.toml").code == 3


def test_resources_are_checked_wherever_it_runs(cli: Callable[..., Any], flow: Path) -> None:
    for key, value, told in (
        ("tmie", '"2h"', "did you mean time?"),
        ("time", '"soon"', "is not a time"),
        ("nodes", "0", "at least 1"),
        ("signal_before", '90, time = "1m"', "a signal 90 s before the end of 60 s"),
        ("requeue", 'true, time = "2m"', "a signal 120 s before the end of 120 s"),
        ("serve", '"vlm"', "sglang or vllm"),
        ("serve", '"vllm"', "no model is named"),
        ("sbatch", '{ output = "x" }', "is decided by atropos"),
    ):
        flow.write_text(f"resources = {{ {key} = {value} }}\n{FLOW}")
        result = cli("pipeline", "run", "flow.toml", "-o", "out", "--dry-run")
        assert (result.code, told in result.stderr) == (3, True), result.stderr


def test_arguments_and_variables_reach_the_step_as_they_are(
    cli: Callable[..., Any], install: Callable[..., Path]
) -> None:
    code = "import json, os\n\ndef echo(words: list[str]) -> int:\n    print(json.dumps([words, os.environ['NOTE']]))\n"
    install("echo-dist", {"echo_module.py": code}, {"atropos.commands": {"echo": "echo_module:echo"}})
    odd = ["two words", "$HOME", "`id`", "it's", "a\nb", "ünï", ";", "", "*", "{x}", "{{output}}"]
    step = {"command": ["echo", *odd], "env": {"NOTE": "it's $HOME; \n"}}
    Path("flow.yaml").write_text(json.dumps({"steps": {"say": step}}))
    assert cli("pipeline", "run", "flow.yaml", "-o", "out").code == 0
    words, note = json.loads(Path("out/steps/say/log.txt").read_text())
    assert words == [*odd[:-1], "{output}"]
    assert note == step["env"]["NOTE"]  # type: ignore[index]


def test_a_step_that_leaves_no_output_has_failed(cli: Callable[..., Any]) -> None:
    Path("flow.toml").write_text('[steps.a]\ncommand = ["env", "list"]\noutput = "list.txt"\n')
    result = cli("pipeline", "run", "flow.toml", "-o", "out")
    assert result.code == 6
    assert "left no" in result.stderr
    assert records()["a"]["state"] == "failed"


def test_one_step_as_a_cluster_job_does(cli: Callable[..., Any], flow: Path) -> None:
    Path("out").mkdir()
    assert cli("pipeline", "step", "out", "gen").code == 6  # holds no pipeline
    Path("out").rmdir()
    assert cli("pipeline", "run", "flow.toml", "-o", "out").code == 0
    done = cli("pipeline", "step", "out", "rows")
    assert (done.code, "done already" in done.stderr) == (0, True)
    shutil.rmtree("out/gen")
    early = cli("pipeline", "step", "out", "scored", "--anew")
    assert (early.code, "'gen', which is not done" in early.stderr) == (6, True)
    typo = cli("pipeline", "step", "out", "scord")
    assert (typo.code, "did you mean 'scored'?" in typo.stderr) == (3, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_pipeline_goes_on_where_it_was(cli: Callable[..., Any], flow: Path, number: int) -> None:
    """Stopped in the middle of a gen: its finished groups are kept, nothing of it goes on running."""
    quick = '"--backend", "scripted"'
    changed(flow, quick, f'{quick}, "--drain", "0", "--workers", "1"')
    env = {**os.environ, "ATROPOS_BACKEND__DELAY_S": "0.3"}
    program = [sys.executable, "-m", "atropos_cli", "pipeline", "run", "flow.toml", "-o", "out"]
    child = subprocess.Popen(program, env=env, stderr=subprocess.PIPE)
    groups = Path("out/gen/groups.jsonl")
    deadline = time.monotonic() + 60
    while not (groups.exists() and groups.stat().st_size):
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.05)
    child.send_signal(number)
    child.communicate(timeout=60)
    assert child.returncode == (130 if number != signal.SIGKILL else -signal.SIGKILL)
    if number != signal.SIGKILL:
        assert records()["gen"]["state"] == "interrupted"
    told = cli("pipeline", "status", "out", "--json")
    reason = {step["name"]: step.get("reason") for step in told.json["steps"]}["gen"]
    assert told.code == (1 if number == signal.SIGKILL else 0)
    assert reason == "killed" if number == signal.SIGKILL else reason.startswith("exit code 1")
    resumed = cli("pipeline", "run", "flow.toml", "-o", "out", "--resume")
    while resumed.code == 6 and "being" in resumed.stderr and time.monotonic() < deadline:
        time.sleep(0.2)  # killed outright: the step ends a moment later
        resumed = cli("pipeline", "run", "flow.toml", "-o", "out", "--resume")
    assert resumed.code == 0, resumed.stderr
    assert json.loads(Path("out/gen/summary.json").read_text())["groups_resumed"] > 0
    assert len(groups.read_text().splitlines()) == 4


def test_two_at_once_are_refused(cli: Callable[..., Any], flow: Path) -> None:
    import fcntl

    assert cli("pipeline", "run", "flow.toml", "-o", "out").code == 0
    with Path("out/steps/rows/lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refused = cli("pipeline", "run", "flow.toml", "-o", "out", "--redo", "rows")
    assert (refused.code, "carried out already" in refused.stderr) == (6, True)


def test_servers_of_a_job_reach_the_steps_command(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a SLURM job with `serve` calls: the first start fails for want of a server, the second has one."""
    from atropos_authoring.mock_server import MockServer

    step = {"command": ["gen", "arithmetic", "--limit", "2", "--max-wait", "0.1", "-o", "{output}"]}
    Path("flow.yaml").write_text(json.dumps({"steps": {"gen": step}}))
    monkeypatch.setenv("ATROPOS_BASE_URL", "http://127.0.0.1:9/v1")
    assert cli("pipeline", "run", "flow.yaml", "-o", "out").code == 5
    with MockServer(models=("m",), reply="Answer: 7") as one, MockServer(models=("m",), reply="Answer: 7") as two:
        result = cli("pipeline", "step", "out", "gen", "--base-url", f"{one.base_url},{two.base_url}")
    assert result.code == 0, result.stderr
    assert records()["gen"]["state"] == "done"
    assert json.loads(Path("out/gen/summary.json").read_text())["groups_done"] == 2
