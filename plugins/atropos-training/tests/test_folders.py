"""Folders of training runs: what --resume and --overwrite do with them, whatever state they are in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRAINER = f"{Path(__file__).with_name('step_trainer.py')}:Steps"


@pytest.fixture
def train(cli: Callable[..., Any]) -> Callable[..., Any]:
    """train(*arguments): sft with the trainer of steps, on one row, into `run` in the working directory."""
    Path("rows.jsonl").write_text(json.dumps({"prompt": "1+1=", "completion": "2"}) + "\n")

    def call(*arguments: str, run: str = "run", data: str = "rows.jsonl") -> Any:
        words = ["train", "sft", "--trainer", TRAINER, "--model", "m", "--data", data, "-o", run]
        return cli(*words, *(() if "--steps" in arguments else ("--steps", "3")), *arguments)

    return call


def state(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(run, "train.json").read_text())
    return found


def script(text: str | None) -> None:
    if text is None:
        Path("script").unlink()
    else:
        Path("script").write_text(text)


def test_the_weights_of_an_overwriting_run_are_named_where_they_are_in_the_end(train: Callable[..., Any]) -> None:
    assert train().code == 0
    result = train("--overwrite", "--json")
    assert result.code == 0, result.stderr
    assert json.loads(result.stdout)["output"] == "run/model"
    assert state("run")["output"] == "run/model"
    assert Path("run/model").is_dir()
    assert not Path("run.new").exists()
    assert "run.new" not in train("--overwrite").stdout


def test_an_interrupted_overwrite_is_named_and_never_lost(train: Callable[..., Any]) -> None:
    assert train().code == 0
    script("stop 2")
    result = train("--overwrite")
    assert result.code == 130
    first, following = result.stderr.splitlines()[-2:]
    assert first == "interrupted after step 2 (run is still the old run)"
    assert following.endswith(" --resume --output run.new")
    assert "--overwrite" not in following
    before = Path("run/train.json").read_bytes()
    for flag in ("--resume", "--overwrite"):
        refused = train(flag)
        assert refused.code == 6, refused.stderr
        assert "run.new holds an unfinished" in refused.stderr
        assert "--resume --output run.new continues" in refused.stderr
        assert "remove run.new" in refused.stderr
    assert Path("run/train.json").read_bytes() == before
    script(None)
    resumed = train("--resume", run="run.new")
    assert resumed.code == 0, resumed.stderr
    assert "resumed from step 2" in resumed.stderr
    assert state("run.new")["output"] == "run.new/model"


def test_an_overwrite_that_did_nothing_is_in_nobodys_way(train: Callable[..., Any]) -> None:
    assert train().code == 0
    script("fail 0")
    assert train("--overwrite").code == 8
    assert Path("run.new/plan.json").exists()
    script(None)
    assert "finished" in train("--resume").stderr
    assert train("--overwrite").code == 0


def test_resuming_a_finished_run_changes_nothing(train: Callable[..., Any]) -> None:
    assert train().code == 0
    before = {path.name: path.read_bytes() for path in Path("run").iterdir() if path.is_file()}
    script("fail 3")
    result = train("--resume", "--json")
    assert result.code == 0, result.stderr
    assert "run is finished: nothing is left to do" in result.stderr
    assert json.loads(result.stdout) == {
        "run": "run", "output": "run/model", "steps": 3, "metrics": {"loss": 0.5}, "stopped": None,
    }  # fmt: skip
    assert {path.name: path.read_bytes() for path in Path("run").iterdir() if path.is_file()} == before
    script(None)
    longer = train("--resume", "--steps", "5")
    assert longer.code == 0, longer.stderr
    assert (state("run")["steps"], state("run")["state"]) == (5, "finished")
    other = train("--resume", "--steps", "5", "--prompts-per-step", "2")
    assert other.code == 6
    assert "prompts_per_step" in other.stderr


def test_a_job_with_more_steps_trains_on_a_finished_run(train: Callable[..., Any], cli: Callable[..., Any]) -> None:
    """A submission writes its plan.json first: that file does not say what the finished run was asked for."""
    assert train().code == 0
    path = Path("run/plan.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "steps": 5}))
    done = cli("run", "run")
    assert done.code == 0, done.stderr
    assert (state("run")["steps"], state("run")["state"]) == (5, "finished")
    assert "nothing is left to do" in cli("run", "run").stderr


def test_a_finished_run_without_weights_is_the_trainers_business(train: Callable[..., Any]) -> None:
    assert train().code == 0
    Path("run/model").rmdir()
    result = train("--resume")
    assert result.code == 0, result.stderr
    assert Path("run/model").is_dir()


def test_resume_begins_nothing_by_hand_and_a_job_in_its_folder(train: Callable[..., Any]) -> None:
    missing = train("--resume", run="fresh")
    assert missing.code == 6
    assert "fresh does not exist" in missing.stderr
    assert "leave out --resume" in missing.stderr
    assert not Path("fresh").exists()
    Path("junk").mkdir()
    Path("junk/notes.txt").write_text("mine")
    assert train("--resume", run="junk").code == 6
    assert sorted(path.name for path in Path("junk").iterdir()) == ["notes.txt"]
    Path("job/logs").mkdir(parents=True)
    Path("job/job.json").write_text("{}")
    assert train("--resume", run="job").code == 0
    Path("killed").mkdir()
    Path("killed/lock").write_text("pid 1 on nowhere\n")
    assert train("--resume", run="killed").code == 0


@pytest.mark.parametrize("arguments", [[], ["--resume"]])
def test_a_run_in_which_nothing_was_done_is_in_nobodys_way(
    arguments: tuple[str, ...], train: Callable[..., Any]
) -> None:
    script("fail 0")
    failed = train()
    assert failed.code == 8
    assert "--resume" not in failed.stderr  # there is no checkpoint to go on from
    metrics = Path("run/metrics.jsonl")
    metrics.write_text('{"step": 0, "time": "t", "kind": "eval", "eval/x/accuracy": 0.5}\n')
    script(None)
    again = train(*arguments, "--prompts-per-step", "4")
    assert again.code == 0, again.stderr
    assert ("nothing was done in run yet" in again.stderr) == bool(arguments)
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == [1, 2, 3]
    assert train().code == 6  # now it holds a run


def test_a_missing_file_leaves_no_run_behind(train: Callable[..., Any]) -> None:
    missing = train(data="nowhere.jsonl")
    assert missing.code == 6
    assert "nowhere.jsonl does not exist" in missing.stderr
    assert not Path("run").exists()


def test_a_bug_after_a_checkpoint_says_from_where_to_go_on(train: Callable[..., Any]) -> None:
    script("fail 2")
    failed = train()
    assert failed.code == 8
    assert "step-2 is complete: continue with --resume --output run" in failed.stderr


def test_a_folder_of_another_command_is_refused(train: Callable[..., Any]) -> None:
    Path("run").mkdir()
    Path("run/plan.json").write_text("{}")
    assert train().code == 6
    resumed = train("--resume")
    assert resumed.code == 6
    assert "is not the plan of a training run" in resumed.stderr


def test_the_journal_knows_a_killed_run_and_how_far_it_got(train: Callable[..., Any], cli: Callable[..., Any]) -> None:
    from atropos_cli.io.rundir import open_run

    assert train().code == 0  # writes the rows
    script("crash 2")
    words = [
        "train",
        "sft",
        "--trainer",
        TRAINER,
        "--model",
        "m",
        "--data",
        "rows.jsonl",
        "-o",
        "runs/a",
        "--steps",
        "3",
    ]
    done = subprocess.run([sys.executable, "-m", "atropos_cli", *words], env={**os.environ}, capture_output=True)
    assert done.returncode == 9, done.stderr
    assert state("runs/a")["state"] == "running"
    (entry,) = json.loads(cli("journal", "--json").stdout)
    assert (entry["state"], entry["steps"]) == ("interrupted", 2)
    assert entry["results"] == {"reward": "0.000 -> 1.000 (best 1.000 at 2)"}
    held = open_run(Path("runs/a"), resume=True)
    (entry,) = json.loads(cli("journal", "--json").stdout)
    assert (entry["state"], entry["steps"]) == ("running", 2)
    held.close()


def test_the_last_step_is_told(train: Callable[..., Any]) -> None:
    result = train("--steps", "9")
    told = [line.partition(":")[0] for line in result.stderr.splitlines() if line.startswith("step ")]
    assert told == ["step 1/9", "step 2/9", "step 3/9", "step 9/9"]


def test_other_rows_are_accepted_by_a_flag_and_recorded(train: Callable[..., Any], cli: Callable[..., Any]) -> None:
    script("stop 2")
    assert train().code == 130
    script(None)
    rows = [{"prompt": "1+1=", "completion": "2"}, {"prompt": "2+2=", "completion": "4"}]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    refused = train("--resume")
    assert (refused.code, "--accept-changed-data" in refused.stderr) == (6, True)
    assert state("run")["state"] == "failed"
    result = train("--resume", "--accept-changed-data")
    assert result.code == 0, result.stderr
    assert "1 rows then, 2 now" in result.stderr
    events = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    assert [event for event in events if event["event"] == "warning" and "accepted" in event["message"]]
    assert [mark["rows"] for mark in json.loads(Path("run/data.json").read_text())["earlier"]] == [1]
    entry = cli("journal", ".", "--json").json[0]
    assert (entry["run"], entry["note"]) == ("run", "its rows changed and were accepted, 1 times")


def test_a_new_run_takes_the_flag_for_nothing(train: Callable[..., Any]) -> None:
    assert train("--accept-changed-data").code == 0
    assert "accepted" not in Path("run/log.jsonl").read_text()
    again = train("--resume", "--steps", "4")  # the flag is no part of what a run is
    assert again.code == 0, again.stderr
