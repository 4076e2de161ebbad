"""`train ppo|sac|grpo` and `eval --policy` by the command line: records, films, resuming after kill -9, refusals."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

SMALL = ("--num-envs", "2", "--no-subprocesses", "--rollout-steps", "16", "--batch-size", "16")
SUITE = "gymnasium:CartPole-v1:limit=3"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def train(cli: Any, folder: Path, method: str, *options: str, env: str = "gymnasium:CartPole-v1") -> Any:
    return cli("train", method, "--env", env, "-o", str(folder), *options)


def test_a_run_has_policy_evaluations_films_and_records(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATROPOS_OFFLINE", "1")
    run = tmp_path / "run"
    options = ("--steps", "2", "--eval", SUITE, "--eval-every", "1", "--track", "wandb")
    done = train(cli, run, "ppo", *SMALL, *options)
    assert done.code == 0, done.stderr
    assert sorted(path.name for path in (run / "model").iterdir()) == ["policy.json", "policy.pt"]
    films = sorted((run / "videos").iterdir())
    assert [film.name for film in films] == [f"CartPole-v1-test-000000-step-{step}.mp4" for step in range(3)]
    assert all(film.read_bytes()[4:8] == b"ftyp" for film in films)
    offline = [path for path in (run / "wandb").rglob("*.mp4") if not path.is_symlink()]
    assert {path.read_bytes() for path in offline} == {film.read_bytes() for film in films}
    tables = [json.loads(path.read_text()) for path in (run / "wandb").rglob("table_*.table.json")]
    assert max(len(table["data"]) for table in tables if "video" in table["columns"]) == 3
    groups = lines(run / "groups.jsonl")
    assert len({group["group_id"] for group in groups}) == len(groups) == 9
    with_film = [group for group in groups if "video" in group["rollouts"][0]["info"]]
    assert [group["model"] for group in with_film] == ["step-0", "step-1", "step-2"]
    picture = with_film[0]["rollouts"][0]["messages"][0]["content"][1]["image_url"]["url"]
    assert picture.startswith("data:image/gif;base64,")
    metrics = lines(run / "metrics.jsonl")
    assert [(row["step"], row["kind"]) for row in metrics] == [
        (0, "eval"),
        (1, "train"),
        (1, "eval"),
        (2, "train"),
        (2, "eval"),
    ]
    assert metrics[3]["env_steps"] == 64
    assert "eval/gymnasium:CartPole-v1/accuracy_low" in metrics[-1]

    found = cli(
        "eval", "gymnasium:CartPole-v1", "--policy", str(run / "model"), "--limit", "3", "-o", str(tmp_path / "e")
    )
    assert found.code == 0, found.stderr
    again = {group["task"]["id"]: group["rollouts"][0]["reward"] for group in lines(tmp_path / "e" / "groups.jsonl")}
    last = {group["task"]["id"]: group["rollouts"][0]["reward"] for group in groups[-3:]}
    assert again == last
    assert base64.b64decode(picture.partition(",")[2]).startswith(b"GIF89a")  # as the pages of view want it


def test_a_random_policy_plays_without_a_model(cli: Any, tmp_path: Path) -> None:
    words = ("eval", "gymnasium:CartPole-v1", "--policy", "random", "--limit", "2", "--videos", "0")
    first = cli(*words, "-o", str(tmp_path / "a"), "--json")
    second = cli(*words, "-o", str(tmp_path / "b"), "--json")
    assert first.code == second.code == 0, first.stderr
    (one,), (other,) = (json.loads(done.stdout)["evaluations"] for done in (first, second))
    assert one["model"] == "random"
    assert one["reward"] == other["reward"]


def test_resumed_after_kill_9_without_loss_or_doubles(cli: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", "grpo", "--env", "gymnasium:CartPole-v1", "-o", str(run), "--steps", "4", "--save-every", "1"]
    words += ["--eval", SUITE, "--group-size", "4", "--prompts-per-step", "2", "--num-envs", "2", "--videos", "0"]
    code = "import sys; from atropos_cli.cli.app import main; sys.argv[0] = 'atropos'; main()"
    child = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 1200
        while not (run / "checkpoints" / "step-2").is_dir():
            assert child.poll() is None, child.communicate()[0].decode()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    done = cli(*words, "--resume")
    assert done.code == 0, done.stderr
    steps = [row["step"] for row in lines(run / "metrics.jsonl") if row["kind"] == "train"]
    assert steps == [1, 2, 3, 4]
    groups = lines(run / "groups.jsonl")
    assert len({group["group_id"] for group in groups}) == len(groups) == 5 * 3  # at the start and after each step
    assert not list((run / "checkpoints").glob(".writing*"))
    assert "nothing is left to do" in cli(*words, "--resume").stderr


def test_a_resumed_run_has_the_values_of_its_first_session(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the presets are others by now: the same command, and the stored plan, go on with the first ones."""
    from atropos_control import config

    first = {
        "steps": 4,
        "num_envs": 1,
        "rollout_steps": 10,
        "layers": [8],
        "learning_rate": 1e-3,
        "batch_size": 8,
        "gamma": 0.9,
        "her_goals": 2,
        "buffer_size": 100,
        "learning_starts": 10,
        "tau": 0.01,
    }
    later = {**first, "steps": 9, "ent_coef": 0.5, "layers": [4], "learning_rate": 1e-2, "gamma": 0.5, "tau": 0.5}
    table = {"sac": {"default": {**first, "ent_coef": 0.125}, "tiny:Line": first}}
    monkeypatch.setattr(config, "_table", lambda: table)
    words = ("--videos", "0", "--eval", "gymnasium:tiny:Line-v0:limit=1", "--eval-every", "1")
    folders = [tmp_path / name for name in ("command", "plan", "whole")]
    for folder in folders:
        steps = () if folder.name == "whole" else ("--steps", "2")
        done = train(cli, folder, "sac", *words, *steps, env="gymnasium:tiny:Line-v0")
        assert done.code == 0, done.stderr
    plan = json.loads((folders[0] / "plan.json").read_text())
    assert plan["trainer"]["config"]["layers"] == [8]
    assert plan["trainer"]["config"]["ent_coef"] == 0.125
    monkeypatch.setattr(config, "_table", lambda: {"sac": {"default": later, "tiny:Line": {"ent_coef": 0.75}}})
    done = train(cli, folders[0], "sac", *words, "--steps", "4", "--resume", env="gymnasium:tiny:Line-v0")
    assert done.code == 0, done.stderr
    stored = json.loads((folders[1] / "plan.json").read_text())
    (folders[1] / "plan.json").write_text(json.dumps({**stored, "steps": 4}))
    done = cli("run", str(folders[1]))
    assert done.code == 0, done.stderr
    numbers = [
        [
            (row.get("entropy_weight"), row["env_steps"])
            for row in lines(folder / "metrics.jsonl")
            if row["kind"] == "train"
        ]
        for folder in folders
    ]
    assert numbers[0] == numbers[1] == numbers[2] == [(None, 10.0), *((0.125, steps) for steps in (20.0, 30.0, 40.0))]
    assert json.loads((folders[0] / "model" / "policy.json").read_text())["layers"] == [8]
    given = ("--steps", "4", "--resume", "--gamma", "0.8")
    done = train(cli, folders[0], "sac", *words, *given, env="gymnasium:tiny:Line-v0")
    assert done.code != 0
    assert "trainer.config.gamma: 0.9 in the run, 0.8 now" in done.stderr


def test_grpo_and_ppo_begin_from_a_policy(cli: Any, tmp_path: Path) -> None:
    small = ("--num-envs", "2", "--videos", "0", "--eval", SUITE, "--steps", "1")
    first = train(cli, tmp_path / "a", "grpo", "--group-size", "2", "--prompts-per-step", "1", *small)
    assert first.code == 0, first.stderr
    model = ("--trainer", "control", "--model", str(tmp_path / "a" / "model"))
    second = train(cli, tmp_path / "b", "grpo", "--group-size", "2", "--prompts-per-step", "1", *small, *model)
    assert second.code == 0, second.stderr
    ends = [row for row in lines(tmp_path / "a" / "metrics.jsonl") if row["kind"] == "eval"]
    starts = [row for row in lines(tmp_path / "b" / "metrics.jsonl") if row["kind"] == "eval"]
    name = "eval/gymnasium:CartPole-v1/reward"
    assert starts[0][name] == ends[-1][name]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sac", "--env", "gymnasium:CartPole-v1"), "sac needs actions that are numbers"),
        (("ppo",), "needs an environment"),
        (("ppo", "--env", "arithmetic"), "plays environments of Gymnasium, not 'arithmetic'"),
        (("grpo", "--env", "arithmetic", "--trainer", "control"), "plays environments of Gymnasium"),
        (("ppo", "--env", "gymnasium:Blackjack-v1"), "cannot read observations that are tuples"),
        (("ppo", "--env", "gymnasium:CartPole-v1", "--data", "x.jsonl"), "no such option: --data"),
        (("ppo", "--env", "gymnasium:CartPole-v1", "--tau", "0.5"), "--tau is for sac, not for ppo"),
        (("grpo", "--env", "gymnasium:CartPole-v1", "--advantage", "rae"), "--advantage rae"),
        (("ppo", "--env", "gymnasium:CartPole-v1", "--env.wrappers", "NoSuch"), "wrapper 'NoSuch' cannot be used"),
        (("ppo", "--env", "gymnasium:CartPole-v1", "--model", "nowhere"), "nowhere"),
        (("ppo", "--env", "gymnasium:CartPole-v1", "--seed", "-1"), "--seed -1 is not for control"),
        (("ppo", "--env", "gymnasium:CartPole-v1", "--eval", f"{SUITE},samples=2"), "plays each start once"),
        (("ppo", "--env", "gymnasium:CartPole-v1", "--eval", f"{SUITE},policy=random"), "policy is for gen and eval"),
        (("ppo", "--env", "gymnasium:CartPole-v1", "--eval", "gymnasium:Pendulum-v1"), "Pendulum-v1 has Box"),
        (("ppo", "--env", "gymnasium:odd:From1-v0"), "counts values from 0"),
        (("sac", "--env", "gymnasium:odd:SeenFrom1-v0"), "counts values from 0"),
        (("ppo", "--env", "gymnasium:odd:Stamp-v0"), "ppo cannot train on odd:Stamp-v0"),
        (("grpo", "--env", "gymnasium:odd:Nested-v0"), "nested more than once"),
    ],
)
def test_what_cannot_be_trained_is_said(cli: Any, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = cli("train", *words, "-o", str(tmp_path / "run"), "--steps", "1", "--videos", "0")
    assert done.code in (2, 3, 6), done.stderr
    assert said in done.stderr
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("method", ["ppo", "sac", "grpo"])
@pytest.mark.parametrize(
    ("fault", "processes", "said"),
    [
        ("nan-reward", False, "gave the reward nan"),
        ("nan-seen", False, "gave an observation with NaN"),
        ("leave", False, "it called sys.exit(4)"),
        ("raise", True, "an environment failed: RuntimeError: the simulator broke"),
        ("die", True, "the process of an environment ended by itself"),
    ],
)
def test_an_environment_that_breaks_ends_the_training_and_says_why(
    cli: Any, tmp_path: Path, method: str, fault: str, processes: bool, said: str
) -> None:
    if processes and method == "sac":
        pytest.skip("its environments are those of ppo")
    options = ["--steps", "2", "--layers", "4", "--videos", "0", "--num-envs", "2", "--eval"]
    options += [f"gymnasium:odd:Late-{fault}-v0:limit=1", "--subprocesses" if processes else "--no-subprocesses"]
    done = train(cli, tmp_path / "run", method, *options, env=f"gymnasium:odd:Late-{fault}-v0")
    assert done.code == 8
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("policy", ["random", "trained"])
def test_episodes_from_the_same_start_are_drawn_anew(cli: Any, tmp_path: Path, policy: str) -> None:
    if policy == "trained":
        small = ("--num-envs", "2", "--videos", "0", "--eval", SUITE, "--steps", "1", "--prompts-per-step", "1")
        assert train(cli, tmp_path / "a", "grpo", "--group-size", "2", *small).code == 0
        policy = str(tmp_path / "a" / "model")
    words = ("gen", "gymnasium:CartPole-v1", "--policy", policy, "--stochastic", "--limit", "1", "--group-size", "33")
    assert cli(*words, "-o", str(tmp_path / "run")).code == 0
    (group,) = lines(tmp_path / "run" / "groups.jsonl")
    steps = [rollout["info"]["steps"] for rollout in group["rollouts"]]
    assert steps[1:17] != steps[17:33]
    words = ("gen", "gymnasium:CartPole-v1", "--policy", policy, "--stochastic", "--limit", "6", "--group-size", "2")
    assert cli(*words, "--videos", "6", "-o", str(tmp_path / "pairs")).code == 0
    pairs = [
        [one["info"]["steps"] for one in group["rollouts"]] for group in lines(tmp_path / "pairs" / "groups.jsonl")
    ]
    assert sum(first != second for first, second in pairs) >= 4


@pytest.mark.parametrize("name", ["Plain", "NoPicture"])
def test_what_cannot_be_filmed_is_played_all_the_same(cli: Any, tmp_path: Path, name: str) -> None:
    words = ("eval", f"gymnasium:odd:{name}-v0", "--policy", "random", "--limit", "2", "--samples", "3")
    done = cli(*words, "-o", str(tmp_path / "e"))
    assert done.code == 0, done.stderr
    groups = lines(tmp_path / "e" / "groups.jsonl")
    assert [[rollout["reward"] for rollout in group["rollouts"]] for group in groups] == [[5.0] * 3] * 2


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (None, "holds no policy"),
        ({"format": 2}, "another format"),
        ({"format": 1, "method": "ppo", "layers": [4], "observations": "Box"}, "was trained with observations"),
    ],
)
def test_a_folder_without_a_fitting_policy(cli: Any, tmp_path: Path, about: Any, said: str) -> None:
    if about is not None:
        (tmp_path / "policy.json").write_text(json.dumps(about))
    words = ("eval", "gymnasium:CartPole-v1", "--policy", str(tmp_path), "--limit", "1")
    done = cli(*words, "-o", str(tmp_path / "e"))
    assert done.code != 0
    assert said in done.stderr


def test_fetch_by_ppo_with_a_film(cli: Any, tmp_path: Path) -> None:
    pytest.importorskip("gymnasium_robotics")
    from atropos_control.making import renderer

    if renderer() is None:
        pytest.skip("neither EGL nor OSMesa is installed: MuJoCo cannot draw without a screen")
    env, suite = "gymnasium:FetchReach-v4", "gymnasium:FetchReach-v4:limit=1"
    options = ("--steps", "1", "--eval", suite, "--num-envs", "2", "--subprocesses")
    options += ("--rollout-steps", "60", "--batch-size", "60")
    done = train(cli, tmp_path / "run", "ppo", *options, env=env)
    assert done.code == 0, done.stderr
    assert len(list((tmp_path / "run" / "videos").glob("*.mp4"))) == 2
    assert lines(tmp_path / "run" / "metrics.jsonl")[-1]["eval/gymnasium:FetchReach-v4/accuracy"] in (0.0, 1.0)
