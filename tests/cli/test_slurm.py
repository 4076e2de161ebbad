"""`atropos slurm` on a machine without SLURM: what is refused, and what a dry run shows. Real jobs: tests/e2e."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.cli.resolve import frozen_config

GEN = ("gen", "arithmetic", "--backend", "scripted", "--backend.replies", "1")


@pytest.fixture(autouse=True)
def _no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/usr/bin-without-slurm")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def plan(cli: Callable[..., Any], *words: str) -> dict[str, Any]:
    done = cli("slurm", "submit", "--dry-run", "--json", "--no-check", *words)
    assert done.code == 0, done.stderr
    found: dict[str, Any] = done.json
    return found


def test_a_gen_writes_into_the_jobs_folder_and_can_go_on(cli: Callable[..., Any]) -> None:
    found = plan(cli, "--", *GEN, "--output", "runs/x")
    main = found["plan"]["components"][0]
    assert found["folders"] == [str(Path("runs/x").absolute())]
    assert main["argv"][-2:] == ["run", "{run}"]
    assert (found["run"]["command"], found["run"]["execution"]["drain"]) == ("gen", 20)
    assert found["call"][:2] == ["sbatch", "--parsable"]
    assert found["test_only"] is None
    assert not Path("runs").exists()


def test_a_command_without_a_plan_gets_the_configuration_as_it_is(cli: Callable[..., Any]) -> None:
    """Of the user's file and the project's, the later one wins; secrets are not written down."""
    Path("atropos.toml").write_text('limit = 3\n[sampling]\ntop_p = 0.5\n[backends.openai]\napi_key = "abc"\n')
    Path("other.toml").write_text("limit = 4\n")
    assert frozen_config(None) == {"slurm": {}, "limit": 3, "sampling": {"top_p": 0.5}, "backends": {"openai": {}}}
    found = plan(cli, "--", "filter", "a.jsonl", "-o", "b.jsonl", "--config", "other.toml")["plan"]
    assert found["components"][0]["argv"][-4:] == ["filter", "a.jsonl", "-o", "b.jsonl"]
    assert re.search(r"/runs/filter-\d{8}-\d{6}/config.json$", found["env"]["ATROPOS_CONFIG"])
    assert plan(cli, "--", *GEN)["plan"]["env"] == {}


TRAIN = ("train", "grpo", "--env", "arithmetic", "--model", "M")


def test_a_training_writes_into_the_jobs_folder_and_can_go_on(cli: Callable[..., Any]) -> None:
    found = plan(cli, "--requeue", "--", *TRAIN, "--output", "runs/x")
    (main,) = found["plan"]["components"]
    assert found["folders"] == [str(Path("runs/x").absolute())]
    assert main["argv"][-2:] == ["run", "{run}"]
    assert found["run"]["command"] == "train"
    assert main["env"] == {}


def test_a_training_on_several_nodes_has_helpers_that_meet_main(cli: Callable[..., Any]) -> None:
    found = plan(cli, "--nodes", "3", "--gpus-per-node", "8", "--", *TRAIN, "--processes", "8", "--output", "runs/x")
    main, second, third = found["plan"]["components"]
    assert [item["role"] for item in (main, second, third)] == ["main", "helper", "helper"]
    assert [item["node"] for item in (main, second, third)] == [0, 1, 2]
    assert main["ports"] == ["rendezvous"]
    assert main["env"] == {"NNODES": "3", "NODE_RANK": "0", "MASTER_ADDR": "{host}", "MASTER_PORT": "{port}"}
    there = {"MASTER_ADDR": "{endpoint:main.host}", "MASTER_PORT": "{endpoint:main.port}"}
    assert third["env"] == {"NNODES": "3", "NODE_RANK": "2", **there}
    assert main["argv"] == second["argv"] == third["argv"]


def test_the_network_of_the_profile_is_that_of_the_processes(cli: Callable[..., Any]) -> None:
    Path("atropos.toml").write_text('[slurm]\nprofile = "c"\n[slurm.profiles.c]\ninterface = "ib0"\n')
    components = plan(cli, "--nodes", "2", "--", *TRAIN)["plan"]["components"]
    assert len(components) == 2
    for item in components:
        assert item["env"]["NCCL_SOCKET_IFNAME"] == item["env"]["GLOO_SOCKET_IFNAME"] == "ib0"


def test_data_that_an_earlier_job_makes_need_not_be_there(cli: Callable[..., Any]) -> None:
    words = ("train", "sft", "--data", "rows.jsonl", "--model", "M")
    refused = cli("slurm", "submit", "--dry-run", "--", *words)
    assert refused.code == 3
    assert "rows.jsonl" in refused.stderr
    assert cli("slurm", "submit", "--dry-run", "--after", "17", "--", *words).code == 0


def test_idle_gpus_are_told(cli: Callable[..., Any]) -> None:
    done = cli("slurm", "submit", "--dry-run", "--no-check", "--gpus-per-node", "8", "--", *TRAIN)
    assert "--processes 8 uses them" in done.stderr


def test_other_commands_get_a_folder_of_their_own(cli: Callable[..., Any]) -> None:
    found = plan(cli, "--", "score", "data.jsonl", "--output", "scored.jsonl")
    assert re.search(r"/runs/score-\d{8}-\d{6}$", found["folders"][0])
    assert found["plan"]["components"][0]["argv"][-4:] == ["score", "data.jsonl", "--output", "scored.jsonl"]
    assert found["plan"]["cwd"] == str(Path.cwd())


def test_words_of_the_user_are_no_placeholders(cli: Callable[..., Any]) -> None:
    found = plan(cli, "--", "filter", "a.jsonl", "--where", "{port} {run}")
    assert found["plan"]["components"][0]["argv"][-1] == "{{port}} {{run}}"


def test_an_array(cli: Callable[..., Any]) -> None:
    found = plan(cli, "--array", "4", "--array-limit", "2", "--", *GEN)
    assert "#SBATCH --array=0-3%2" in found["script"]
    main, merge = found["plan"]["components"]
    assert main["argv"][-2:] == ["run", "{run}"]
    assert merge["after"] == ["main"]
    refused = cli("slurm", "submit", "--array", "2", "--", "score", "x.jsonl")
    assert refused.code == 2
    assert "--array shards the tasks of gen" in refused.stderr


def test_a_requeued_job_leaves_time_to_save(cli: Callable[..., Any]) -> None:
    found = plan(cli, "--requeue", "--time", "1h", "--signal-before", "200", "--", *GEN)
    assert "#SBATCH --signal=B:USR1@200" in found["script"]
    job = found["plan"]
    drain = found["run"]["execution"]["drain"]
    assert drain < job["drain"] <= 200 - job["grace"]
    assert job["max_requeues"] == 10
    assert plan(cli, "--requeue", "--", *GEN, "--drain", "7")["run"]["execution"]["drain"] == 7
    assert cli("slurm", "submit", "--time", "2m", "--signal-before", "120", "--", *GEN).code == 2


def test_serve(cli: Callable[..., Any]) -> None:
    sizes = ("--nodes", "2", "--gpus-per-node", "8", "--serve", "sglang", "--tp", "8")
    found = plan(cli, *sizes, "--server-option=--trust-remote-code", "--", "gen", "arithmetic", "--model", "org/m")
    servers = [item for item in found["plan"]["components"] if item["role"] == "service"]
    assert [(item["name"], item["node"], item["gpus"]) for item in servers] == [
        ("server0", 0, list(range(8))),
        ("server1", 1, list(range(8))),
    ]
    assert all("--trust-remote-code" in item["argv"] for item in servers)
    main = found["plan"]["components"][-1]["argv"]
    urls = [main[position + 1] for position, word in enumerate(main) if word == "--base-url"]
    assert urls == ["http://{endpoint:server0}/v1", "http://{endpoint:server1}/v1"]
    given = plan(cli, *sizes, "--model", "org/m", "--", "gen", "arithmetic")
    assert given["run"]["model"] == "org/m"


@pytest.mark.parametrize(
    ("words", "option"), [(GEN, "--to"), (("train", "grpo", "--steps", "1", "--model", "m"), "--from")]
)
def test_serve_trajectories(cli: Callable[..., Any], words: tuple[str, ...], option: str) -> None:
    found = plan(cli, "--serve", "trajectories", "--server-option=--no-reset", "--", *words)
    server, main = found["plan"]["components"]
    assert server["argv"][3:] == ["atropos_cli", "serve", "{run}/trajectories", "--port", "{port}", *server["argv"][8:]]
    assert server["argv"][8:] == ["--host", "127.0.0.1", "--no-reset"]
    assert (server["node"], server["gpus"], server["health"]) == (0, [], "/status")
    assert main["argv"][-2:] == ["--trajectories", "http://{endpoint:trajectories}"]
    assert main["argv"][3:6] == ["atropos_cli", "run", "{run}"]
    taken = cli(
        "slurm", "submit", "--dry-run", "--serve", "trajectories", "--", *words, option, "http://127.0.0.1:8000"
    )
    assert (taken.code, "drop one of them" in taken.stderr) == (2, True), taken.stderr


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("--serve", "trajectories", "--", "eval", *GEN[1:]), 2, "is for gen and for train grpo"),
        (("--serve", "trajectories", "--tp", "2", "--", *GEN), 2, "has no model"),
        (("--", "genn", "arithmetic"), 2, "did you mean gen?"),
        (("--", "slurm", "list"), 2, "no command for a batch job"),
        (("--", "--nodes"), 2, "give the command to run"),
        (("--time", "1:30", "--", *GEN), 2, "minutes and seconds"),
        (("--mem", "lots", "--", *GEN), 2, "not a size"),
        (("--sbatch", "wrap=x", "--", *GEN), 2, "decided by atropos"),
        (("--sbatch", "nodes=9", "--", *GEN), 2, "use --nodes"),
        (("--env", "NOT_SET_HERE", "--", *GEN), 2, "is not set here"),
        (("--env", "MY_TOKEN=abc", "--", *GEN), 2, "looks like a secret"),
        (("--after", "nothing", "--", *GEN), 2, "there is no job 'nothing'"),
        (("--profile", "nope", "--", *GEN), 3, "there is no SLURM profile 'nope'"),
        (("--serve", "vllm", "--", "gen", "arithmetic"), 2, "needs a model"),
        (("--tp", "2", "--", *GEN), 2, "need --serve"),
        (("--serve", "vllm", "--model", "m/m", "--", *GEN, "--base-url", "http://x/v1"), 2, "drop one"),
        (("--", *GEN, "--output", "-"), 2, "no standard output"),
        (("--", *GEN, "--overwrite"), 2, "--overwrite cannot be used in a job"),
        (("--", *GEN, "--no-such-option", "1"), 3, "no-such-option"),
        (("--", *GEN), 7, "sbatch is not on the PATH"),
    ],
)
def test_refused(cli: Callable[..., Any], words: tuple[str, ...], code: int, complaint: str) -> None:
    done = cli("slurm", "submit", *words)
    assert (done.code, complaint in done.stderr) == (code, True), done.stderr


def test_g06_secrets_reach_the_job_unwritten(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "secret-value-1")
    monkeypatch.setenv("HF_TOKEN", "secret-value-2")
    done = cli("slurm", "submit", "--dry-run", "--env", "WANDB_API_KEY", "--env", "HF_TOKEN", "--", *GEN)
    assert done.code == 0
    assert "secret-value" not in done.stdout + done.stderr
    assert "#SBATCH --export=ALL" in done.stdout  # everything set here is inherited


def test_g05_values_of_the_environment_travel_in_the_plan(cli: Callable[..., Any]) -> None:
    env = {"LAYERS": "q_proj,k_proj", "NOTE": "two words", "Q": 'it\'s "quoted" $HOME', "EMPTY": ""}
    words = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    assert plan(cli, *words, "--", *GEN)["plan"]["env"] == env


FORGOTTEN = """#!/bin/sh
case "$*" in
  "show config") echo "ClusterName = here" ;;
  *) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
esac
"""


def test_g18_a_wrong_state_is_never_waited_for(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that SLURM forgot and whose folder tells nothing: one clear answer, from status at once."""
    for name, text in {"scontrol": FORGOTTEN, "sacct": "#!/bin/sh\n"}.items():
        program = tmp_path / "slurm" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    path = os.environ["PATH"]
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "submitted.json").write_text(json.dumps({"id": "5", "name": "old", "launcher": "slurm"}))
    done = cli("slurm", "status", str(folder), "--json")
    assert (done.code, done.json["state"]) == (0, "unknown")
    (folder / "logs" / "attempt_1").mkdir(parents=True)
    done = cli("slurm", "status", str(folder), "--json")  # no cluster answers, so it may still run
    assert (done.code, done.json["state"]) == (0, "unknown")
    monkeypatch.setenv("PATH", f"{tmp_path / 'slurm'}{os.pathsep}{path}")
    done = cli("slurm", "status", str(folder), "--json")
    assert (done.code, done.json["state"]) == (1, "lost")
    (folder / "exit.json").write_text(json.dumps({"code": 75, "reason": "not ready"}))
    done = cli("slurm", "status", str(folder))
    assert done.code == 1
    assert "not ready" in done.stdout


def test_profiles(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("atropos.toml").write_text(
        '[slurm]\nprofile = "a"\n[slurm.profiles.a]\npartition = "pa"\n'
        '[slurm.profiles.b]\npartition = "pb"\ntime = "3h"\n[slurm.profiles.c]\npartitoin = "x"\n'
    )
    assert "--partition=pa" in plan(cli, "--", *GEN)["script"]
    script = plan(cli, "--profile", "b", "--", *GEN)["script"]
    assert "--partition=pb" in script
    assert "--time=0-03:00:00" in script
    assert "--time=0-00:10:00" in plan(cli, "--profile", "b", "--time", "10m", "--", *GEN)["script"]
    monkeypatch.setenv("ATROPOS_SLURM_PROFILE", "b")
    assert "--partition=pb" in plan(cli, "--", *GEN)["script"]
    wrong = cli("slurm", "submit", "--profile", "c", "--", *GEN)
    assert (wrong.code, "did you mean partition?" in wrong.stderr) == (3, True)
    Path("atropos.toml").write_text("[slurm]\npartition = 'x'\n")
    monkeypatch.delenv("ATROPOS_SLURM_PROFILE")
    for command in (("slurm", "submit"), ("job", "submit", "--on", "slurm")):
        wrong = cli(*command, "--", *GEN)
        assert (wrong.code, "slurm.partition" in wrong.stderr) == (3, True)
    assert cli("gen", "arithmetic", "--dry-run", "--backend", "scripted").code == 0  # other commands pass it over


def test_list_without_any_job(cli: Callable[..., Any]) -> None:
    assert cli("slurm", "list").stdout == ""
    assert os.environ["PATH"]  # nothing of SLURM was asked
