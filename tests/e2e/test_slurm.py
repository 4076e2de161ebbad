"""Jobs on a real SLURM of two nodes with two made-up GPUs each: every way a job can end, and that nothing is left."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.builtin.slurm.launcher import SlurmLauncher
from atropos_cli.domain.job import Component, JobPlan, Resources, Warmup
from atropos_cli.engine.jobs.folder import write_job
from atropos_cli.ports.launcher import JobSpec

sys.path.insert(0, str(Path(__file__).parent))
import slurm_cluster
from slurm_cluster import Cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(slurm_cluster.missing() is not None, reason=f"no SLURM: {slurm_cluster.missing()}"),
]
PROGRAMS = str(Path(__file__).with_name("slurm_programs.py"))
ENV = """
from atropos_cli.sdk import Environment, Task, reward, user

@reward
def right(task, rollout):
    return float(rollout.messages[-1].content == task.answer)

class Sums(Environment):
    name = "sums"
    rewards = (right,)

    def tasks(self, split):
        return [Task(id=str(n), prompt=(user(f"{n}+1?"),), answer=str(n + 1)) for n in range(24)]
"""
PLAYER = """
import re

def reply(messages, request):
    return str(int(re.search(r"\\d+", messages[-1].content)[0]) + 1)
"""


SLOW = """
    import pathlib, time
    time.sleep(0 if pathlib.Path("fast").exists() else 2)
"""
ASK = """
import os, sys, urllib.request as u
print([u.urlopen(url).status for url in sys.argv[1:]], os.environ["SLURMD_NODENAME"])
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests of this file."""
    before = os.environ.get("SLURM_CONF")
    found = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        found.up()
        yield found
    finally:
        found.down()
        if before is None:
            os.environ.pop("SLURM_CONF", None)
        else:
            os.environ["SLURM_CONF"] = before


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an environment and a player; after the test no process of it may be left."""
    (tmp_path / "sums.py").write_text(ENV)
    (tmp_path / "player.py").write_text(PLAYER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path
    deadline = time.monotonic() + 10
    while (left := processes_of(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def processes_of(folder: Path) -> list[str]:
    """Command lines of living processes that name the folder, or were started as components of a job in it."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        try:
            command = (path / "cmdline").read_bytes()
            marked = b"_ATROPOS_COMPONENT=" + str(folder).encode() in (path / "environ").read_bytes()
        except OSError:
            continue
        if command and (marked or str(folder).encode() in command):
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


GEN = ("gen", "./sums.py:Sums", "--backend", "scripted", "--backend.function", "./player.py:reply", "--group-size", "2")


def service(name: str, node: int, *, warm: float = 0, die: float = 0, code: int = 0, gpu: int = 0) -> Component:
    argv = (sys.executable, "-u", PROGRAMS, "server", "{port}", str(warm), str(die), str(code))
    warmup = Warmup(path="/warm", json_body={"x": 1})
    return Component(
        name=name, role="service", argv=argv, node=node, gpus=(gpu,), ports=("http",), health="/health", warmup=warmup
    )


def main(*argv: str) -> Component:
    return Component(name="main", role="main", argv=argv)


def client(*names: str) -> Component:
    return main(sys.executable, "-u", PROGRAMS, "client", *(f"http://{{endpoint:{name}}}/health" for name in names))


def start(folder: Path, *components: Component, nodes: int = 2, **settings: Any) -> str:
    """Submit a job made of components; returns its id."""
    resources = Resources(nodes=nodes, gpus_per_node=2, cpus_per_node=2)
    plan = JobPlan(atropos_version="0", name="test", components=components, resources=resources, grace=5, **settings)
    write_job(plan, folder)
    spec = JobSpec(name="test", run=str(folder), cwd=str(folder), resources=resources.model_dump(mode="json"))
    return SlurmLauncher(SlurmLauncher.Config()).submit(spec)


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "exit.json").read_text())
    return found


def log(folder: Path, name: str) -> str:
    return (folder / "logs" / "latest" / f"{name}.log").read_text()


def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


def groups(run: Path) -> dict[str, Any]:
    """The groups of a run by id, without what differs from run to run."""
    found = {}
    for line in (run / "groups.jsonl").read_text().splitlines():
        group = json.loads(line)
        found[group["group_id"]] = [
            ([m["content"] for m in item["messages"]], item["reward"]) for item in group["rollouts"]
        ]
    return found


def test_one_gen_job(place: Path, cli: Any) -> None:
    """Field case G01 too: the folder of the log is not there before."""
    done = cli("slurm", "submit", "--wait", "--json", "--time", "10m", "--", *GEN, "--limit", "3", "--output", "a run")
    assert done.code == 0, done.stderr
    assert done.json["state"] == "finished"
    assert done.json["exit_code"] == 0
    assert len(groups(place / "a run")) == 3
    assert record(place / "a run")["code"] == 0
    shown = cli("slurm", "status", "a run")
    assert shown.code == 0
    assert "finished" in shown.stdout
    assert "3" in cli("slurm", "logs", "a run", "main").stdout
    assert [item["state"] for item in cli("slurm", "list", "--json").json] == ["finished"]


def test_a_failing_command_gives_its_own_code(place: Path, cli: Any) -> None:
    words = ("eval", "./sums.py:Sums", "--backend", "scripted", "--no-such-option", "1")
    refused = cli("slurm", "submit", "--", *words)
    assert refused.code == 3
    assert "no-such-option" in refused.stderr
    done = cli("slurm", "submit", "--no-check", "--wait", "--", *words)
    assert done.code == 2
    assert "no-such-option" in cli("slurm", "logs", "eval", "main").stdout
    assert cli("slurm", "status", "eval").code == 1


def test_two_nodes_two_servers(place: Path, cluster: Cluster) -> None:
    argv = (
        sys.executable,
        "-c",
        ASK,
        "http://{endpoint:server0}/",
        "http://{endpoint:server1}/",
    )
    asking = main(*argv).replace(node=1)
    job = cluster.wait(start(place, service("server0", 0, warm=1), service("server1", 1, gpu=1), asking))
    assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), log(place, "main")
    assert log(place, "main").strip() == "[200, 200] n2"
    for number in (0, 1):
        endpoint = json.loads((place / "endpoints" / f"server{number}.json").read_text())
        assert endpoint["node"] == f"n{number + 1}"
        assert "asked /warm" in log(place, f"server{number}")
        assert "stopped politely" in log(place, f"server{number}")
        # the child in its own session was ended by the parent on the node
        assert json.loads((place / "status" / f"server{number}.json").read_text())["leftovers"] == 1
    started = [json.loads(line)["event"] for line in (place / "events.jsonl").read_text().splitlines()]
    assert started.index("ready") < len(started) - 1 - started[::-1].index("start")


def test_gpus_of_a_component(place: Path, cluster: Cluster) -> None:
    show = main("sh", "-c", 'echo "gpus $CUDA_VISIBLE_DEVICES"').replace(gpus=(1,))
    cluster.wait(start(place, show, nodes=1))
    assert log(place, "main").strip() == "gpus 1"


def test_array_of_four_shards_merges_to_the_unsharded_run(place: Path, cli: Any) -> None:
    assert cli(*GEN, "--output", "whole").code == 0
    done = cli("slurm", "submit", "--wait", "--json", "--array", "4", "--time", "10m", "--", *GEN, "--output", "parts")
    assert done.code == 0, done.stderr
    assert [item["state"] for item in done.json["shards"]] == ["finished"] * 4
    assert done.json["merged"]
    assert groups(place / "parts") == groups(place / "whole")
    assert len(groups(place / "parts")) == 24
    counts = [len(groups(place / "parts" / "shards" / str(number))) for number in range(4)]
    assert sum(counts) == 24
    assert min(counts) > 0
    assert json.loads((place / "parts" / "summary.json").read_text())["state"] == "finished"
    assert not list((place / "parts").glob(".merge*"))


def test_the_tasks_of_an_array_do_not_touch_each_other(place: Path, cluster: Cluster) -> None:
    """The last task's SLURM_JOB_ID is that of the whole array: stopping its server must stop no other one."""
    later = main("sh", "-c", "sleep $((6 - 5 * SLURM_ARRAY_TASK_ID))")
    resources = Resources(gpus_per_node=1, cpus_per_node=1, array=2)
    components = (service("server0", 0), later)
    plan = JobPlan(atropos_version="0", name="test", components=components, resources=resources, grace=5)
    write_job(plan, place)
    spec = JobSpec(name="test", run=str(place), resources=resources.model_dump(mode="json"))
    launcher = SlurmLauncher(SlurmLauncher.Config())
    job_id = launcher.submit(spec)
    until(lambda: launcher.status(job_id).state not in ("pending", "running"))
    assert launcher.status(job_id).state == "finished"
    for index in (0, 1):
        assert record(place / "shards" / str(index))["job_id"] == f"{job_id}_{index}"
        assert "stopped politely" in log(place / "shards" / str(index), "server0")


def test_a_chain_whose_middle_fails(place: Path, cluster: Cluster, cli: Any) -> None:
    first = cli("slurm", "submit", "--json", "--", *GEN, "--limit", "1", "--output", "first").json["id"]
    bad = cli(
        "slurm", "submit", "--json", "--no-check", "--after", first, "--", *GEN, "--limit", "0", "--output", "bad"
    )
    last = cli("slurm", "submit", "--json", "--after", "bad", "--", *GEN, "--limit", "1", "--output", "last").json["id"]
    assert cluster.wait(first)["JobState"] == "COMPLETED"
    assert cluster.wait(bad.json["id"])["JobState"] == "FAILED"
    assert cluster.wait(last)["JobState"] == "CANCELLED"
    assert not (place / "last" / "events.jsonl").exists()
    assert cli("slurm", "status", "last").code == 1


def test_the_time_limit_comes_the_job_goes_on_to_the_same_groups(place: Path, cluster: Cluster, cli: Any) -> None:
    """Field case G03."""
    assert cli(*GEN, "--output", "whole").code == 0
    # far too slow for a minute, until there is a file that says otherwise
    (place / "player.py").write_text(PLAYER.replace("    return", SLOW + "    return"))
    slow = (*GEN, "--workers", "1")
    limits = ("--time", "1m", "--signal-before", "55", "--requeue")
    done = cli("slurm", "submit", "--json", *limits, "--max-requeues", "1", "--", *slow, "--output", "run")
    assert done.code == 0, done.stderr
    job_id = done.json["id"]
    until(lambda: cluster.job(job_id).get("Restarts") == "1", 80)  # SLURM looks at limits every half minute
    assert record(place / "run") | {"code": 138, "requeued": True} == record(place / "run")
    before = len(groups(place / "run"))
    assert 0 < before < 24
    (place / "fast").touch()
    cluster.output("scontrol", "update", f"JobId={job_id}", "TimeLimit=10")
    assert cluster.wait(job_id, 90)["JobState"] == "COMPLETED"
    assert groups(place / "run") == groups(place / "whole")
    assert sorted(path.name for path in (place / "run" / "logs").iterdir()) == ["attempt_1", "attempt_2", "latest"]
    assert record(place / "run")["attempt"] == 2
    output = (place / "run" / f"slurm-{job_id}.out").read_text()
    assert output.count("start main") == 2  # appended, not truncated


def test_cancel_stops_servers_politely(place: Path, cluster: Cluster, cli: Any) -> None:
    job_id = start(place, service("server0", 0), service("server1", 1), client("server0", "server1"))
    until(lambda: (place / "logs/latest/main.log").exists() and "200" in log(place, "main"))
    began = time.monotonic()
    assert cli("slurm", "cancel", job_id).stdout == f"job {job_id} is cancelled\n"
    assert time.monotonic() - began < 20
    assert record(place)["code"] == 143
    assert "stopped politely" in log(place, "server0")
    assert "stopped politely" in log(place, "server1")
    assert cli("slurm", "status", str(place)).code == 1
    unknown = cli("slurm", "cancel", "999999")
    assert unknown.code == 7
    assert "does not know job 999999" in unknown.stderr


def test_a_server_that_ends_with_0_fails_the_job(place: Path, cluster: Cluster) -> None:
    job = cluster.wait(start(place, service("server0", 0), service("server1", 1, die=4), client("server0", "server1")))
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "70:0")
    assert record(place)["component"] == "server1"
    assert "ended with 0 while it was used" in record(place)["reason"]
    assert "stopped politely" in log(place, "server0")


def test_a_server_that_is_never_healthy(place: Path, cluster: Cluster) -> None:
    job = cluster.wait(start(place, service("server0", 0, warm=999), client("server0"), nodes=1, start_timeout=2))
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "75:0")
    assert "GET /health" in record(place)["reason"]


def test_a_server_that_crashes_at_its_start(place: Path, cluster: Cluster, cli: Any) -> None:
    broken = service("server0", 0).replace(argv=("sh", "-c", "echo CUDA out of memory >&2; exit 9"))
    began = time.monotonic()
    job_id = start(place, broken, client("server0"), nodes=1, start_timeout=600)
    job = cluster.wait(job_id)
    assert time.monotonic() - began < 30
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "70:0")
    # the last lines and the path of the log stand in the job's own log
    own = (place / f"slurm-{job_id}.out").read_text()
    assert "CUDA out of memory" in own
    assert str(place / "logs" / "attempt_1" / "server0.log") in own


@pytest.mark.parametrize("victim", ["pid", "parent"])
def test_kill_9_of_a_server_ends_the_job(place: Path, cluster: Cluster, victim: str) -> None:
    job_id = start(place, service("server0", 0), client("server0"), nodes=1)
    until(lambda: (place / "logs/latest/main.log").exists() and "200" in log(place, "main"))
    began = time.monotonic()
    os.kill(json.loads((place / "endpoints" / "server0.json").read_text())[victim], 9)
    job = cluster.wait(job_id)
    assert time.monotonic() - began < 15
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "70:0")
    assert record(place)["component"] == "server0"


def test_odd_arguments_arrive_unchanged(place: Path, cluster: Cluster) -> None:
    odd = ["a b", "$HOME", "q\"u'o", "n\nl", "ü→", ";", "*", "", "`id`", "\\", "--nodes=9", "%j", "{{port}}", "a;b\\;"]
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD']]))"
    shown = main(sys.executable, "-c", code, *odd).replace(env={"ODD": "p,q = 'x' \"y\" $HOME\n"})
    folder = place / "50% it's a %j run"
    folder.mkdir()
    job_id = start(folder, shown, nodes=1)
    assert cluster.wait(job_id)["ExitCode"] == "0:0"
    odd[odd.index("{{port}}")] = "{port}"
    assert json.loads(log(folder, "main")) == [odd, "p,q = 'x' \"y\" $HOME\n"]
    assert (folder / f"slurm-{job_id}.out").exists()


def test_serve_starts_servers_for_gen(place: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for vLLM on two nodes: gen gets the address of both."""
    (place / "bin").mkdir()
    engine = place / "bin" / "vllm"
    engine.write_text(
        f"#!{sys.executable}\nimport os, sys\nw = sys.argv[1:]\n"
        "host, port = w[w.index('--host') + 1], w[w.index('--port') + 1]\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'atropos_cli.testing.mock_server', '--host', host,"
        " '--port', port, '--flavor', 'vllm', '--model', w[1]])\n"
    )
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}")
    words = ("gen", "./sums.py:Sums", "--model", "org/tiny", "--limit", "8", "--group-size", "1", "--output", "run")
    sizes = ("--nodes", "2", "--gpus-per-node", "2", "--time", "10m", "--start-timeout", "60")
    done = cli("slurm", "submit", "--wait", "--json", "--serve", "vllm", "--tp", "2", *sizes, "--", *words)
    assert done.code == 0, done.stderr + (log(place / "run", "server0") if (place / "run/logs").exists() else "")
    assert [item["name"] for item in done.json["components"]] == ["server0", "server1", "main"]
    assert len({item["node"] for item in done.json["components"][:2]}) == 2
    assert len(groups(place / "run")) == 8
    backend = json.loads((place / "run" / "plan.json").read_text())["backend"]["config"]
    assert len(backend["base_url"]) == 2


def test_logs_are_followed_to_the_end(place: Path, cli: Any) -> None:
    job = cli("slurm", "submit", "--json", "--", *GEN, "--backend.delay-s", "0.2", "--limit", "6", "--output", "run")
    lines = cli("slurm", "logs", "-f", job.json["id"])
    assert lines.code == 0
    assert "6" in lines.stdout
    assert record(place / "run")["code"] == 0


def test_dry_run_asks_sbatch_and_writes_nothing(place: Path, cli: Any) -> None:
    done = cli("slurm", "submit", "--dry-run", "--gpus-per-node", "2", "--time", "2h", "--", *GEN, "--output", "run")
    assert done.code == 0
    assert "#SBATCH --time=0-02:00:00" in done.stdout
    assert "sbatch --parsable" in done.stdout
    assert "to start at" in done.stdout
    assert not (place / "run").exists()
    refused = cli("slurm", "submit", "--dry-run", "--gpus-per-node", "3", "--", *GEN, "--output", "run")
    assert refused.code == 7
    assert "Requested node configuration is not available" in refused.stderr


def test_a_template_and_a_profile_of_ones_own(place: Path, cluster: Cluster, cli: Any) -> None:
    (place / "own.j2").write_text(
        "#!/bin/bash\n{% for d in directives %}#SBATCH {{ d }}\n{% endfor %}"
        "{% for s in setup %}{{ s }}\n{% endfor %}exec {{ command }}\n"
    )
    (place / "atropos.toml").write_text(
        '[slurm]\nprofile = "ci"\n[slurm.profiles.ci]\ntemplate = "own.j2"\npartition = "main"\n'
        'setup = ["export FROM_SETUP=\'a b\'"]\nenv = { FROM_PROFILE = "1,2" }\nsbatch = { comment = "hi there" }\n'
    )
    (place / "sums.py").write_text(
        ENV.replace("range(24)", "range(1 if os.environ['FROM_SETUP'] == 'a b' else 0)").replace(
            "from atropos_cli.sdk", "import os\nfrom atropos_cli.sdk"
        )
    )
    done = cli("slurm", "submit", "--no-check", "--wait", "--json", "--", *GEN, "--output", "run")
    assert done.code == 0, done.stderr
    assert cluster.job(done.json["id"])["Partition"] == "main"
    assert "#SBATCH --comment='hi there'" in (place / "run" / "job.sbatch").read_text()


def test_g18_what_sbatch_refuses_is_said_in_its_own_words(place: Path, cli: Any) -> None:
    done = cli("slurm", "submit", "--wait", "--no-check", "--sbatch", "partition=gpuu", "--", *GEN, "--output", "run")
    assert done.code == 7
    assert "invalid partition specified: gpuu" in done.stderr


def test_g18_a_job_that_fails_at_its_start_is_not_waited_for(place: Path, cli: Any) -> None:
    """Without accounting: this cluster has none."""
    words = ("eval", "./nothing.py:Nothing", "--backend", "scripted")
    done = cli("slurm", "submit", "--wait", "--json", "--no-check", "--", *words)
    assert done.code == 4
    assert done.json["state"] == "failed"
    assert "nothing.py" in cli("slurm", "logs", done.json["id"], "main").stdout


def test_nobody_waits_for_a_job_that_never_starts(place: Path, cluster: Cluster, cli: Any) -> None:
    done = cli("slurm", "submit", "--no-check", "--wait", "--cpus", "99", "--", *GEN, "--output", "run")
    assert done.code == 7
    assert "PartitionConfig" in done.stderr or "not available" in done.stderr
    for job_id in cluster.output("squeue", "-h", "-o", "%A").split():
        cluster.output("scancel", job_id)
