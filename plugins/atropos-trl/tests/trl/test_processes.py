"""Two processes, gloo on the CPU: one run, the groups and weights of one process; killed, stopped and resumed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer
from test_resume import wait_for_step
from trl_support import make_tiny, metrics, run

from atropos_cli.jobs.processes import descendants
from atropos_cli.sdk.records import read_train_plan

pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("atropos_local")

STEPS = 8
PROGRAM = """
import hashlib, os, sys
from pathlib import Path
from atropos_cli.cli.app import run
from atropos_training.session import TrainSession

models, adopt = [], TrainSession.adopt

def noted(self, model, tokenizer):
    models.append(model)
    adopt(self, model, tokenizer)

TrainSession.adopt = noted
code = run(sys.argv[2:])
weights = b"".join(p.detach().numpy().tobytes() for _, p in sorted(models[0].named_parameters()))
(Path(sys.argv[1]) / ("weights-" + os.environ["RANK"])).write_text(hashlib.sha256(weights).hexdigest())
sys.exit(code)
"""


def words(folder: Path, small: Path, env_file: str, *more: str) -> list[str]:
    options = {
        "--env": f"{env_file}:Letters",
        "--model": str(small),
        "--max-tokens": "8",
        "--group-size": "4",
        "--prompts-per-step": "4",
        "--learning-rate": "3e-3",
        "--steps": str(STEPS),
        "--save-every": "2",
        "--eval": f"small={env_file}:Letters:limit=4",
        "--eval-every": "4",
        "--output": str(folder),
    }
    return ["train", "grpo", *(word for pair in options.items() for word in pair), *more]


def start(command: list[str]) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )


def groups(*folders: Path) -> dict[str, Any]:
    """Texts and rewards of each group of these folders, by its task; no task twice."""
    found: dict[str, Any] = {}
    for folder in folders:
        for line in (folder / "groups.jsonl").read_text().splitlines():
            group = json.loads(line)
            assert group["task"]["id"] not in found
            rollouts = group["rollouts"]
            found[group["task"]["id"]] = [([m["content"] for m in one["messages"]], one["reward"]) for one in rollouts]
    return found


def weights(run_folder: Path) -> str:
    return hashlib.sha256((run_folder / "model" / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def both(small: Path, env_file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes from beginning to end, started by torchrun."""
    folder = tmp_path_factory.mktemp("both")
    (folder / "program.py").write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    process = start([*launcher, str(folder / "program.py"), str(folder), *words(folder / "run", small, env_file)])
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert out.count("curves:") == 1, "only rank 0 says how it went"
    assert err.count("step 3/8") == 1
    return folder


@pytest.mark.slow
def test_two_processes_are_one_run(small: Path, env_file: str, both: Path, tmp_path: Path) -> None:
    """The groups of both ranks are those of one process; both ranks end with the same weights."""
    assert (both / "weights-0").read_text() == (both / "weights-1").read_text()
    plan = read_train_plan(both / "run" / "plan.json")
    run(plan, tmp_path / "alone")
    first, second = groups(both / "run"), groups(both / "run" / "ranks" / "1")
    assert len(first) == len(second) == 2 * STEPS
    assert first | second == groups(tmp_path / "alone")
    for name in ("loss", "reward", "grad_norm", "completions/mean_length", "completions/clipped_ratio"):
        expected = [row[name] for row in metrics(tmp_path / "alone")]
        assert [row[name] for row in metrics(both / "run")] == pytest.approx(expected, abs=1e-4), name
    assert [row["step"] for row in metrics(both / "run", "eval")] == [0, 4, 8]
    states = {path.name for path in (both / "run" / "checkpoints" / f"step-{STEPS}").glob("rng_state*")}
    assert states == {"rng_state_0.pth", "rng_state_1.pth"}


@pytest.mark.slow
def test_the_groups_of_all_ranks_are_read(both: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "atropos_cli", "filter", str(both / "run"), "--output", str(both / "kept.jsonl")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len((both / "kept.jsonl").read_text().splitlines()) == 4 * STEPS, done.stderr


@pytest.mark.slow
def test_killed_then_stopped_then_finished(small: Path, env_file: str, both: Path, tmp_path: Path) -> None:
    """`--processes 2`: a rank is killed, the run resumed, stopped and resumed: the end is that of torchrun's run."""
    folder = tmp_path / "run"
    command = ["-m", "atropos_cli", *words(folder, small, env_file, "--processes", "2")]
    process = start(command)
    wait_for_step(folder, 3)
    ranks = {_rank(pid): pid for pid in descendants(process.pid)}
    os.kill(ranks["1"], signal.SIGKILL)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 8, err
    assert "rank 1 was ended by signal SIGKILL" in err
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks.values())

    process = start([*command, "--resume"])
    wait_for_step(folder, 5)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    assert json.loads((folder / "train.json").read_text())["state"] == "interrupted"

    process = start([*command, "--resume"])
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert weights(folder) == weights(both / "run")
    assert groups(folder, folder / "ranks" / "1") == groups(both / "run", both / "run" / "ranks" / "1")
    wanted = {row["step"]: (row["loss"], row["grad_norm"]) for row in metrics(both / "run")}
    assert {row["step"]: (row["loss"], row["grad_norm"]) for row in metrics(folder)} == wanted


@pytest.mark.slow
def test_one_process_gives_a_server_the_weights_and_all_sample_from_it(tmp_path: Path) -> None:
    """The server takes new weights once a step, when no process has a request there; each keeps its own groups."""
    model = make_tiny(tmp_path / "model", vocab_size=512)
    (tmp_path / "letters.py").write_text("from atropos_authoring.digits import Digits\n")
    with MockServer(flavor="vllm", models=(str(model),), reply=lambda body, index: "ab1"[index % 3 :]) as server:
        server.model.weight_updates = True
        environment = f"{tmp_path}/letters.py:Digits"
        process = start(
            [
                *("-m", "atropos_cli", "train", "grpo", "--env", environment, "--model", str(model)),
                *("--base-url", server.base_url, "--max-tokens", "8", "--group-size", "4", "--processes", "2"),
                *("--prompts-per-step", "2", "--steps", "3", "--output", str(tmp_path / "run")),
            ]
        )
        _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert [Path(folder).parent.name for folder in server.model.weights] == ["sync"] * 3
    assert len(set(server.model.weights[:2])) == 2
    run_folder = tmp_path / "run"
    assert [(f / "groups.jsonl").read_bytes().count(b"\n") for f in (run_folder, run_folder / "ranks" / "1")] == [3, 3]
    assert not (run_folder / "sync").exists()


def _rank(pid: int) -> str:
    for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        name, _, value = item.partition(b"=")
        if name == b"RANK":
            return value.decode()
    return ""
