"""`--track` of gen and eval: what TensorBoard and W&B are told, over sessions; their trouble stays outside the run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from wandblog import wandb_ended, wandb_records

from atropos_cli.io.rundir import read_plan
from atropos_cli.tracking.services import read_ids

ENVIRONMENT = """
from atropos_cli.sdk import Config, Environment, Task, reward, user
from atropos_cli.sdk.backends import RequestRejected

@reward
def exact(task, rollout) -> float:
    return float(rollout.text == task.answer)

class Sums(Environment):
    name = "sums"
    rewards = (exact,)
    splits = ("train", "test")
    def tasks(self, split):
        return [Task(id=f"{split}-{i}", prompt=(user(f"{i}+1"),), answer=str(i + 1)) for i in range(40)]

def half(messages, request):
    number = int(messages[0].text.split("+")[0])
    return str(number + 1) if number % 2 == 0 else "no"

def mixed(messages, request):
    number = int(messages[0].text.split("+")[0])
    if number == 3:
        raise RequestRejected("400: no")
    mixed.calls = getattr(mixed, "calls", 0) + 1
    return str(number + 1) if mixed.calls % 3 else "no"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_NAME", "WANDB_API_KEY", "WANDB_DISABLED", "ATROPOS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ATROPOS_CONFIG", "")
    (tmp_path / "sums.py").write_text(ENVIRONMENT)
    return tmp_path


@pytest.fixture
def gen(cli: Any) -> Callable[..., Any]:
    def call(*words: str, command: str = "gen", function: str = "mixed") -> Any:
        backend = ("--backend", "scripted", "--backend.function", f"./sums.py:{function}")
        return cli(command, "./sums.py:Sums", *backend, *words)

    return call


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = accumulator.EventAccumulator(str(run / "tensorboard"))
    read.Reload()
    return {tag: [(e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def texts(run: Path, tag: str) -> str:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = accumulator.EventAccumulator(str(run / "tensorboard"))
    read.Reload()
    text: str = read.Tensors(f"{tag}/text_summary")[-1].tensor_proto.string_val[0].decode()
    return text


def test_a_run_that_is_resumed_goes_on_in_the_same_curves(folder: Path, gen: Any, cli: Any) -> None:
    words = ("--group-size", "4", "--max-failure-rate", "1", "-o", "r", "--track", "tensorboard", "--run-group", "g")
    assert gen("--limit", "10", *words).code == 0
    first = scalars(folder / "r")
    assert first["groups/done"] == [(40, 9.0)]  # task 3 is lost
    assert first["failures/generate:RequestRejected"] == [(40, 4.0)]
    assert 0 < first["groups/with_spread"][0][1] <= 1
    assert "machine/cpu_percent" in first or not Path("/proc/stat").exists()
    assert "env: sums" in texts(folder / "r", "summary")
    assert "expected `'1'`" in texts(folder / "r", "samples/gen")
    # Longer, without a tracker, and with one again: never a step twice, and the plan is the same run's.
    assert gen("--limit", "20", *words[:6], "--resume").code == 0
    assert read_plan(folder / "r/plan.json").tracking.trackers == ()
    assert gen("--limit", "40", *words, "--resume").code == 0
    steps = [step for step, _ in scalars(folder / "r")["groups/done"]]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (40, 160)
    last = cli("run", "r")  # nothing is left to do; its curves stay as they are
    assert [step for step, _ in scalars(folder / "r")["groups/done"]] == steps
    assert last.code == 0
    assert "warning" not in last.stderr


def test_numbers_come_while_the_run_goes_on(folder: Path, gen: Any) -> None:
    slow = "import time\n" + ENVIRONMENT.replace(
        "def half(messages, request):", "def half(messages, request):\n    time.sleep(0.05)"
    )
    (folder / "sums.py").write_text(slow)
    words = ("--workers", "1", "-o", "r", "--group-size", "2", "--track", "tensorboard", "--track-every", "0.5")
    assert gen(*words, function="half").code == 0
    found = scalars(folder / "r")
    steps = [step for step, _ in found["reward/mean"]]
    assert len(steps) >= 4
    assert steps == sorted(set(steps))
    assert all(0 <= value <= 1 for _, value in found["reward/recent"])
    assert all(0 < value < 40 for _, value in found["groups/per_s"])


def test_an_evaluation_reports_its_estimates(folder: Path, gen: Any) -> None:
    words = ("-o", "e", "--samples", "4", "--track", "tensorboard", "--max-failure-rate", "1")
    assert gen(*words, command="eval", function="half").code == 0
    found = scalars(folder / "e")
    told = json.loads((folder / "e/eval.json").read_text())
    for name, key in (("accuracy", "value"), ("accuracy_low", "low"), ("accuracy_high", "high")):
        assert found[f"eval/sums/{name}"] == [(160, pytest.approx(told["accuracy"][key]))]
    for key, value in told["pass_at"]["4"].items():
        if key != "tasks":
            name = f"eval/sums/pass@4{'' if key == 'value' else '_' + key}"
            assert found[name] == [(160, pytest.approx(value))]
    assert "eval/sums/accuracy: 0.5" in texts(folder / "e", "summary")


def test_models_side_by_side_are_one_group(folder: Path, gen: Any) -> None:
    models = ("--models", "a", "--models", "b")
    assert gen("-o", "e", *models, "--track", "tensorboard", command="eval", function="half").code == 0
    assert {read_plan(folder / f"e/{name}/plan.json").tracking.run_group for name in "ab"} == {"e"}
    assert "eval/sums/accuracy" in scalars(folder / "e/a")


def test_overwriting_leaves_the_new_runs_files_only(folder: Path, gen: Any) -> None:
    for limit in ("5", "6"):
        words = ("--limit", limit, "--group-size", "2", "-o", "r", "--overwrite", "--track", "tensorboard")
        assert gen(*words, function="half").code == 0
    assert scalars(folder / "r")["groups/done"] == [(12, 6.0)]
    assert sorted(path.name for path in folder.iterdir() if "sums" not in path.name) == ["r"]


def test_wandb_offline_keeps_its_run_over_sessions(folder: Path, gen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_PROJECT", "from-variable")
    words = ("--group-size", "4", "-o", "r", "--track", "wandb", "--tag", "t1", "--tag", "t2", "--run-name", "n")
    assert gen("--limit", "4", *words, function="half").code == 0
    assert gen("--limit", "8", *words, "--resume", function="half").code == 0
    kept = read_ids(folder / "r")["wandb"]
    assert (kept["project"], kept["offline"]) == ("from-variable", True)
    logs = sorted(folder.glob("r/wandb/offline-run-*/*.wandb"))
    assert [log.stem for log in logs] == [f"run-{kept['id']}"] * 2
    for log in logs:
        assert wandb_ended(log)
        records = b"".join(wandb_records(log))
        assert all(word in records for word in (b"reward/mean", b"groups/with_spread", b"t2", b"groups/per_s"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import no_such_package", "No module named 'no_such_package'"),
        ("raise OSError('no space left')", "OSError: no space left"),
        ("sys.exit(3)", "SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("where", ["__init__", "metrics", "finish"])
def test_a_broken_tracker_of_a_plugin_is_named_once(folder: Path, gen: Any, body: str, said: str, where: str) -> None:
    methods = "".join(
        f"    def {name}(self, *args):\n        {body if name == where else 'pass'}\n"
        for name in ("__init__", "metrics", "finish")
    )
    (folder / "mine.py").write_text(
        f"import sys\nfrom atropos_cli.sdk.outputs import Tracker\nclass Mine(Tracker):\n    name = 'mine'\n{methods}"
    )
    result = gen("--limit", "4", "-o", "r", "--track", "./mine.py:Mine", function="half")
    assert result.code == 0
    err = result.stderr
    assert err.count("left out") == 1
    assert said in err or ("is not installed (pip install no_such_package)" in err and "no_such" in said)
    assert "finished: 4 of 4 groups" in err


def test_a_missing_package_names_its_pip_line(folder: Path, gen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    result = gen("--limit", "4", "-o", "r", "--track", "wandb", function="half")
    assert result.code == 0
    assert result.stderr.count("wandb is not installed (pip install 'atropos-cli[wandb]')") == 1


def test_names_that_nobody_offers_are_refused(gen: Any) -> None:
    unknown = gen("--track", "wandbb", "-o", "r", function="half")
    assert unknown.code == 4
    assert "there is no tracker 'wandbb'" in unknown.stderr
    assert "wandb" in unknown.stderr.replace("wandbb", "")
    piped = gen("--track", "tensorboard", "-o", "-", "--limit", "2", function="half")
    assert piped.code == 0
    assert "needs a run folder" in piped.stderr


def test_settings_for_all_commands_stand_in_one_section(
    folder: Path, gen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ATROPOS_CONFIG")
    (folder / "atropos.toml").write_text('[tracking]\ntrackers = ["tensorboard"]\nproject = "p"\ntags = ["a"]\n')
    monkeypatch.setenv("ATROPOS_ENTITY", "team")
    assert gen("--limit", "2", "-o", "r", "--tag", "b", function="half").code == 0
    told: Any = read_plan(folder / "r/plan.json").tracking
    assert (told.trackers, told.project, told.entity, told.tags) == (("tensorboard",), "p", "team", ("b",))
